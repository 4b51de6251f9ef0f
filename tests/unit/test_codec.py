"""The record format: round trips, older and newer files, and a line that must be read for ever."""

import json
import math
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.codec import from_json, to_json
from harness.schema import SCHEMA_VERSION, Case, Job, Mode, Record, Round, Scalar, Status

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "record_v3.json"


def line(value: Any) -> str:
    """As a line of a file: strict JSON, without NaN."""
    return json.dumps(to_json(value), allow_nan=False, ensure_ascii=False)


# -- round trips -----------------------------------------------------------------------
TEXTS = st.text(max_size=12)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 10**12),
    float: st.floats(allow_nan=False),
    # where a text and a number may both stand, these texts mean numbers
    Scalar: st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | TEXTS.filter(lambda text: text not in ("nan", "inf", "-inf")),
}


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation; of a dataclass, with a value in every field."""
    if kind in LEAVES:
        return LEAVES[kind]
    parts = [values(part) for part in get_args(kind) if part is not ...]
    if get_origin(kind) is tuple:
        return st.lists(parts[0], max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(*parts, max_size=4)
    if parts:
        return st.one_of(parts)
    if is_dataclass(kind):
        build: Any = kind
        return st.builds(build, **{name: values(hint) for name, hint in get_type_hints(kind).items()})
    return st.from_type(kind)


def same_types(left: Any, right: Any) -> bool:
    """Whether equal scalars are also of the same type: 1, 1.0 and True are equal in Python."""
    return all(type(left[key]) is type(right[key]) for key in left)


@settings(max_examples=40)
@given(values(Record))
def test_every_record_comes_back_as_it_went(record: Record) -> None:
    back = from_json(Record, json.loads(line(record)))
    assert (back, back.job.key) == (record, record.job.key)
    assert same_types(back.metrics, record.metrics)
    assert same_types(back.environment, record.environment)
    assert line(back) == line(record)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_come_back(value: float) -> None:
    sent = Round(order=("a",), seconds={"a": value}, minor_faults={"a": 1.0})
    text = line(sent)
    assert json.loads(text)["seconds"]["a"] == str(value)
    assert repr(from_json(Round, json.loads(text)).seconds["a"]) == repr(value)


# -- other versions' files ---------------------------------------------------------------
def golden() -> Record:
    return from_json(Record, json.loads(GOLDEN.read_text(encoding="utf-8")))


def edited(*path: str | int, value: Any) -> dict[str, Any]:
    """The golden line with the value at ``path`` replaced."""
    whole: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    place: Any = whole
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return whole


def test_keys_of_a_newer_version_are_ignored_at_every_level() -> None:
    newer = edited("job", "protocol", "not_yet_invented", value=[1, 2])
    newer["job"]["case"]["also_new"] = {"a": None}
    newer["new"] = "x"
    assert line(from_json(Record, newer)) == line(golden())


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("candidate",), 3, "candidate: 3 is not a text"),
        (("status",), "splendid", "status: 'splendid' is not a valid Status"),
        *((("status",), ["pass"], "status"), (("metrics",), [], "metrics: [] is not an object")),
        (("metrics", "unique_graphs"), [1], "metrics"),
        *((("notes",), "one note", "notes: 'one note' is not a list"), (("notes",), [1], "notes")),
        (("job", "case"), [], "job: case: [] is not an object"),
        (("job", "case", "batch_size"), "64", "job: case: batch_size: '64' is not a whole number"),
        (("job", "case", "batch_size"), True, "job: case: batch_size: True is not an integer"),
        (("job", "protocol", "isolate"), 1, "job: protocol: isolate: 1 is not true or false"),
        (("job", "protocol", "alpha"), True, "job: protocol: alpha: True is not a number"),
        (("job", "protocol", "alpha"), 10**400, "job: protocol: alpha"),
        (("samples", "baseline_s"), ["fast"], "samples: baseline_s: 'fast' is not a number"),
    ],
)
def test_a_wrong_type_is_refused_with_the_fields_name(path: tuple[str, ...], value: Any, named: str) -> None:
    with pytest.raises(ValueError, match=r"^.") as raised:
        from_json(Record, edited(*path, value=value))
    assert str(raised.value).startswith(named)


def test_a_missing_field_without_default_is_named() -> None:
    broken = edited("notes", value=[])
    del broken["job"]["case"]["name"]
    with pytest.raises(ValueError, match=r"^job: case: it has no name"):
        from_json(Record, broken)


# -- the frozen format -----------------------------------------------------------------------
def test_every_field_of_the_golden_record_differs_from_its_default() -> None:
    """So that a field that were no longer read or written would be missed."""
    written = json.loads(GOLDEN.read_text(encoding="utf-8"))
    job = Job(case=golden().job.case, device="", dtype="", candidates=())
    bare = to_json(Record(job=job, candidate="", status=Status.PASS))
    assert written.keys() == bare.keys()
    assert written["job"]["protocol"].keys() == bare["job"]["protocol"].keys()
    same = [key for key in written if written[key] == bare[key]]
    assert same == ["schema_version"]
    small = Case(suite="", name="", mode=Mode.INFERENCE, batch_size=None, published_batch_size=None)
    assert [k for k, v in written["job"]["case"].items() if v == to_json(small)[k]] == []
    assert [k for k, v in written["job"]["protocol"].items() if v == bare["job"]["protocol"][k]] == []


def test_records_of_every_version_are_read_and_the_newest_written() -> None:
    older = json.loads(GOLDEN.with_name("record_v1.json").read_text(encoding="utf-8"))
    record = from_json(Record, older)
    assert (record.schema_version, record.job.case.changes) == (1, ())
    assert record.job.case.name == golden().job.case.name
    assert record.first_calls_s == ()
    nested = from_json(Record, json.loads(GOLDEN.with_name("record_v2.json").read_text(encoding="utf-8")))
    assert (nested.schema_version, nested.process, len(nested.compilations)) == (2, 0, 1)
    text = GOLDEN.read_text(encoding="utf-8")
    record = from_json(Record, json.loads(text))
    assert record.schema_version == SCHEMA_VERSION == 3
    assert line(record) + "\n" == text
