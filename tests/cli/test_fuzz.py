"""Whatever is typed, and whatever a record file has become: an exit code and a sentence, never a traceback.

In this process and without a worker: lists of flags end in ``--list``, ``--print-run-commands`` or a folder
that cannot be used; damaged records are read by ``--visualize-logs``.
"""

import functools
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.codec import to_json
from runner import reports
from runner.cli.main import main
from runner.cli.parser import build_parser
from runner.plan.probe import NoAnswer
from tests.cli.command import ANIMALS, TOYS
from tests.factories import Capture, Patch, accuracy_run, sampled, synthetic_run

# -- flags ---------------------------------------------------------------------------
ODD = """ -- - ../../x /dev/null / ~ `x` %s {0} [ (?P<a * =1 a=b=c : a.b: :make no.such:make no_such.py:make
1e400 -1 0 nan inf 1_000 0x10 2%% % -0% 1e-320 , ,,a,, 0/0 """
USUAL = """
tiny_gpt cpu cuda:1 cuda:0-3 cuda:* float32 bfloat16,float16 amp eager inductor aot_eager,torchscript
2% 0.05 5 30 MLP MLP_addition linear noise field full small tiny own mean hidden=3 1.5 12 local ray
4GB compile=30 LICENSE pyproject.toml tests results no/such/folder """
HOSTILE = (
    *("", " ", "\x1b[31m", "a\nb", "$(touch x)", "\udcff", "\N{ZEBRA FACE}", "\u202e", "\u0661", "x" * 3000),
    *ODD.split(),
    "9" * 5000,
)
GOOD = (TOYS, ANIMALS, *USUAL.split())
VALUES = st.one_of(st.sampled_from(GOOD), st.sampled_from(HOSTILE), st.text(max_size=8))
NEVER = ("-h", "--help", "--pretrained")  # ends the interpreter; needs a network


def words() -> st.SearchStrategy[list[str]]:
    """Flags of the program, alone, with a value behind an equals sign, or with one that follows."""
    flags = [f for action in build_parser()._actions for f in action.option_strings if f not in NEVER]
    flag = st.sampled_from(sorted(flags))
    joined = st.builds("{}={}".format, flag, VALUES).map(lambda word: [word])
    apart = st.tuples(flag, VALUES).map(list)
    return st.lists(
        st.one_of(flag.map(lambda f: [f]), joined, apart, VALUES.map(lambda v: [v])), max_size=7
    ).map(lambda parts: [word for part in parts for word in part])


ENDINGS = (
    ["--list"],
    ["--print-run-commands"],
    ["--training", "--list"],
    ["--training", "--print-run-commands"],
    ["--generate", "--suites=tiny_gpt", "--print-run-commands"],
    ["--visualize-logs", "no/such/folder"],
    ["--resume", "no/such/folder"],
)


def no_worker(*_: object, **__: object) -> Any:
    raise AssertionError("a process was started")


def not_there(*_: object, **__: object) -> Any:
    raise NoAnswer("it is not there")


@pytest.fixture
def quiet(monkeypatch: Patch) -> None:
    """Nothing is started: a library that would be asked says that it is not there. One parser is built."""
    monkeypatch.setattr("runner.cli.parser.build_parser", functools.cache(build_parser))
    monkeypatch.setattr("runner.plan.probe._ask", not_there)
    monkeypatch.setattr("subprocess.Popen.__init__", no_worker)
    monkeypatch.setattr("runner.store.run_folder.RunFolder.create", no_worker)


def check_flags(capsys: Capture, typed: list[str]) -> None:
    try:
        code: object = main(typed)
    except SystemExit as end:  # --version and --help end so
        code = end.code
    said = capsys.readouterr().err
    assert code in (0, 1, 2), typed
    if code == 2:
        *notes, sentence = said.splitlines()
        assert sentence.startswith("error: "), typed
        assert all(line.startswith("note: ") for line in notes), typed
        assert said.isascii() or sentence.isprintable(), typed
        assert len(sentence) < 1500, typed


def at_length(some: int, many: int) -> pytest.MarkDecorator:
    slow, long = pytest.param(some, marks=pytest.mark.slow), pytest.param(many, marks=pytest.mark.long)
    return pytest.mark.parametrize("examples", [slow, long])


@at_length(400, 10_000)
@pytest.mark.usefixtures("quiet")
def test_whatever_is_typed_ends_in_a_sentence(capsys: Capture, examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(words(), st.sampled_from(ENDINGS), st.booleans())
    def check(typed: list[str], ending: list[str], before: bool) -> None:
        check_flags(capsys, [*ending, *typed] if before else [*typed, *ending])

    check()


@pytest.mark.parametrize("value", sampled(9, HOSTILE), ids=lambda value: ascii(value)[:30])
@pytest.mark.usefixtures("quiet")
def test_every_flag_takes_or_refuses_every_value(capsys: Capture, value: str) -> None:
    for action in build_parser()._actions:
        for flag in action.option_strings:
            if flag not in NEVER and flag != "--output-dir":
                check_flags(capsys, ["--training", "--print-run-commands", f"{flag}={value}"])


# -- record files ----------------------------------------------------------------------
LINES = [json.dumps(to_json(record)) for record in (*synthetic_run(), *accuracy_run())]
NUMBERS = (10**400, 2**63, -(2**64), 1e308, -1e308, 5e-324, 0, -1, -0.0, math.nan, math.inf, -math.inf)
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(NUMBERS),
    st.floats(),
    st.sampled_from(["nan", "inf", "-inf", "", *HOSTILE[:20], "\udcff", "x" * 300]),
    st.sampled_from([[], {}, [[]], [1, "a", None], {"a": {"b": []}}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The JSON value with another one at that place."""
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


PLACES = sorted({path for line in LINES for path in places(json.loads(line))}, key=str)


@st.composite
def changed_line(draw: st.DrawFn) -> bytes:
    """A record with values of another type or size in some of its places: still JSON."""
    value = json.loads(draw(st.sampled_from(LINES)))
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)):
        if path in set(places(value)):
            value = put(value, path, draw(STRANGE))
    return json.dumps(value).encode()


@st.composite
def damaged_line(draw: st.DrawFn) -> bytes:
    """A record with bytes changed, taken out or cut off."""
    line = bytearray(draw(st.sampled_from(LINES)).encode())
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(line) - 1))
        line[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(line[: draw(st.integers(0, len(line)))] if draw(st.booleans()) else line)


NESTED = (b"[" * 50_000, b'{"job":' * 20_000, b'{"schema_version": 2, "metrics": ' + b"[" * 5000)
WHOLE = st.sampled_from(LINES).map(str.encode)
FILES = st.lists(
    st.one_of(WHOLE, *[changed_line()] * 2, damaged_line(), st.sampled_from(NESTED), st.binary(max_size=30)),
    max_size=6,
)


def check_records(capsys: Capture, folder: Path, lines: list[bytes]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "records.jsonl").write_bytes(b"\n".join(lines))
    code = main(["--visualize-logs", str(folder)])
    said = capsys.readouterr()
    assert code in (0, 1, 2)
    for line in said.err.splitlines():
        assert line.startswith("error: "), said.err
        assert "was not made" not in line, said.err  # a report that failed
        assert line.isprintable()
        assert len(line) < 1000
    assert (code == 2) == bool(said.err)
    assert (folder / "records.jsonl").read_bytes() == b"\n".join(lines)


@contextmanager
def without_slow_reports() -> Iterator[None]:
    """The plots and the page take half a second each; their own test has fewer examples."""
    modules = [m for m in reports.discover() if not m.__name__.endswith(("plot", "html"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "discover", lambda: modules)
        yield


@at_length(60, 3000)
def test_whatever_records_have_become_they_are_read(capsys: Capture, tmp_path: Path, examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(FILES)
    def check(lines: list[bytes]) -> None:
        check_records(capsys, tmp_path / "run", lines)

    with without_slow_reports():
        check()


@at_length(8, 300)
def test_whatever_records_have_become_they_are_drawn(capsys: Capture, tmp_path: Path, examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(st.lists(changed_line(), min_size=1, max_size=3))
    def check(lines: list[bytes]) -> None:
        check_records(capsys, tmp_path / "run", lines)

    check()
