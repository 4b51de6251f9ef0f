"""The assertions of a result: what fails, what is measured again, what is open, and with which numbers."""

import warnings
from typing import Any

import pytest

from harness.schema import Job, Protocol, Record, Status
from tests.factories import control, make_job, make_record
from torchduet import Result

UNCHECKED = make_job(protocol=Protocol(accuracy=False))


def of(job: Job | None = None, **given: Any) -> Record:
    return make_record(job or make_job(candidates=("inductor", "eager")), **given)


def outcome(assertion: str, *records: Record, again: Record | None = None, **given: Any) -> str:
    """What the assertion says, as an error or as a warning; "" if it holds."""
    asked: list[Job] = []

    def measured(job: Job) -> tuple[Record, ...]:
        asked.append(job)
        return () if again is None else (again,)

    result = Result(records=records, isolated=False, _again=None if again is None else measured)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            getattr(result, assertion)(**given)
        except AssertionError as error:
            return f"error: {error}"
    assert all(job.candidates == ("inductor",) for job in asked)
    return "".join(str(warning.message) for warning in warned)


AGAIN = {"again": of(speedup=0.5)}
REASON = {"graph_break_reasons": "print (model.py:5: print(x))"}
CASES: dict[str, tuple[str, tuple[Record, ...], dict[str, Any], tuple[str, ...]]] = {
    "pass": ("same", (of(), control(make_job(), jitter=0.9)), {}, ()),
    "wrong": ("same", (of(status=Status.FAIL_ACCURACY),), {}, ("error", "grad.layer.weight: RMS error 0.5")),
    "unchecked": ("same", (of(UNCHECKED, status=Status.PASS_DUE_TO_SKIP),), {}, ("parity was not checked",)),
    "approximate": ("same", (of(status=Status.APPROXIMATE),), {}, ("error", "approximate by design")),
    "crash": ("same", (of(status=Status.CRASH),), {}, ("error: Could not run: ", "SIGSEGV")),
    "faster": ("not_slower", (of(speedup=1.5), control(make_job())), {}, ()),
    "slower": (
        *("not_slower", (of(speedup=0.5),), AGAIN),
        ("error: slower than eager by more than 2 %", ": 0.50", "x [0.", ", n = 20 (", "; again: 0.50"),
    ),
    "slower once": (
        *("not_slower", (of(speedup=0.5),), {"again": of(speedup=1.5)}),
        ("torchduet: ", ": 0.50", "; again: 1.5", "exit code 3"),
    ),
    "cannot be measured again": ("not_slower", (of(speedup=0.5),), {}, ("error: slower",)),
    "slower by less": ("not_slower", (of(speedup=0.5),), {"threshold": 1.5}, ()),
    "open": ("not_slower", (of(speedup=0.98, jitter=0.3),), {}, ("torchduet: ", "; to close: ", "by more")),
    "not timed": ("not_slower", (of(speedup=None),), {}, ("error", "no step was timed")),
    "wrong and fast": ("not_slower", (of(status=Status.FAIL_ACCURACY, speedup=3.0),), {}, ("error: Parity",)),
    "whole": ("no_graph_breaks", (of(metrics={"graph_breaks": 0}),), {}, ()),
    "broken": (
        *("no_graph_breaks", (of(metrics={"graph_breaks": 2, **REASON}),), {}),
        ("error", "inductor: 2 graph breaks\n    print (model.py:5"),
    ),
    "asked why": (
        *("no_graph_breaks", (of(metrics={"graph_breaks": 2}),), {"again": of(metrics=REASON)}),
        ("2 graph breaks\n    print (model.py:5",),
    ),
    "not counted": (
        "no_graph_breaks",
        (of(metrics={"graph_breaks": None}),),
        {},
        ("breaks are not counted",),
    ),
    "not run": ("no_recompiles", (of(status=Status.TIMEOUT),), {}, ("error: Timed out",)),
    "later": ("no_recompiles", (of(status=Status.RECOMPILES),), {}, ("error: Recompiled in later steps",)),
    "compiled once": ("no_recompiles", (of(metrics={"recompiles": 0}),), {}, ()),
    "compiled again": (
        "no_recompiles",
        (of(metrics={"recompiles": 1}),),
        {},
        ("1 recompiles\n    no reason",),
    ),
}


@pytest.mark.parametrize(("assertion", "records", "given", "says"), CASES.values(), ids=CASES)
def test_an_assertion_holds_or_says_why_not(
    assertion: str, records: tuple[Record, ...], given: dict[str, Any], says: tuple[str, ...]
) -> None:
    text = outcome(f"assert_{assertion}", *records, **given)
    assert [part for part in says if part not in text] == []
    assert bool(text) == bool(says), text
