"""The first part of report.html: the title, and each result of a small run or the counts of a larger one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PureWindowsPath
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from harness.loading.own_model import suite_of
from harness.schema import Status
from runner.analysis.digits import estimate_text
from runner.analysis.results import CONTROL, Comparison, Summary
from runner.analysis.texts import compiler_name
from runner.analysis.verdicts import Verdict
from runner.labels import case_name, counted, plain
from runner.reports.closing import because, beside_the_speedup

FEW_RESULTS = 4  # of a run whose results stand at the top one by one
FEW_SUITES = 3  # that a title names

KINDS: Mapping[str, tuple[str, tuple[Status, ...]]] = MappingProxyType(
    {
        Verdict.FASTER.value: ("significant, and beyond the noise threshold", ()),
        Verdict.SAME.value: ("the whole 90 % interval is inside the threshold", ()),
        Verdict.INCONCLUSIVE.value: ("the data do not decide", ()),
        Verdict.UNSTEADY.value: ("the rounds have no common speedup", ()),
        Verdict.SLOWER.value: ("significant, and beyond the noise threshold", ()),
        "wrong results": ("parity failed, so the speedup does not count", (Status.FAIL_ACCURACY,)),
        "cannot be judged": (
            "eager's own results do not allow a check of parity",
            (Status.CANNOT_JUDGE, Status.EAGER_TWO_RUNS_DIFFER),
        ),
        "not compiled": ("the compiler was not called, or captured nothing", (Status.NOT_COMPILED,)),
        "recompiles": ("compiled again in every attempt at timed rounds", (Status.RECOMPILES,)),
        "did not run": ("an error, a crash, or a limit of time or memory", ()),
        "no verdict": ("not timed", ()),
        "approximate": ("differs from eager by design", (Status.APPROXIMATE,)),
        "skipped": ("not run, for a reason of the suite", (Status.SKIP,)),
    }
)
"""The groups into which a report sorts comparisons: meaning and statuses, in the order of the page."""
ALWAYS_SHOWN = (Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.SLOWER)


def kind(comparison: Comparison) -> str:
    """Its name in ``KINDS``."""
    status = comparison.record.status
    if status.passed:
        return "no verdict" if comparison.verdict is None else comparison.verdict.value
    return next((name for name, (_, statuses) in KINDS.items() if status in statuses), "did not run")


def counts(comparisons: Iterable[Comparison]) -> dict[str, int]:
    """The number of comparisons of each kind that there is, in the order of ``KINDS``."""
    number = Counter(map(kind, comparisons))
    return {name: number[name] for name in KINDS if number[name]}


def title(summary: Summary) -> str:
    """``MLP_addition, tiny_gpt``, ``18 models of models.py``"""
    cases = (c.record.job.case for c in summary.comparisons)
    whole = (replace(case, point=(), prompt_tokens=None) if case.point else case for case in cases)
    models = dict.fromkeys((suite_of(case.suite), case_name(case)) for case in whole)
    suites = [PureWindowsPath(suite).name for suite in dict.fromkeys(suite for suite, _ in models)]
    if not models:
        return "no records"
    if len(models) == 1:
        return plain(f"{next(iter(models))[1]}, {suites[0]}")
    named = ", ".join(suites) if len(suites) <= FEW_SUITES else counted(len(suites), "suite")
    return plain(f"{counted(len(models), 'model')} of {named}")


def verdicts(summary: Summary, names: Iterable[str]) -> dict[str, Any]:
    """What the page begins with: each result of a small run, or tiles. ``names``: of the comparisons.

    Without the A/A controls, which have a sentence, unless there is nothing else.
    """
    every = [*zip(summary.comparisons, names, strict=True)]
    counted_ones = [(c, name) for c, name in every if c.compiler != CONTROL] or every
    few = counted_ones if len(counted_ones) <= FEW_RESULTS else []
    number = counts(c for c, _ in counted_ones)
    checked = [c for c, _ in counted_ones if c.record.status.counted and c.record.job.protocol.accuracy]
    meanings: dict[str, list[str]] = {}
    for name in number:
        meanings.setdefault(KINDS[name][0], []).append(name)
    return {
        "results": [{**_result(c), "address": f"#case={quote(name, safe='')}"} for c, name in few],
        "tiles": {name: number.get(name, 0) for name in KINDS if name in number or name in ALWAYS_SHOWN},
        "meanings": [(" and ".join(kinds), meaning) for meaning, kinds in meanings.items()],
        "passed": sum(c.passed for c in checked),
        "total": len(checked),
        "controls": _controls([c for c, _ in every if c.compiler == CONTROL and c.verdict is not None]),
        "only_controls": any(c.compiler == CONTROL for c, _ in counted_ones),
    }


def _result(comparison: Comparison) -> dict[str, Any]:
    """One comparison of a small run: its speedup, or the status if it does not count."""
    record, job = comparison.record, comparison.record.job
    where = (job.case.mode.value, job.dtype, job.device, compiler_name(comparison.compiler))
    valid = record.status.passed or record.status is Status.APPROXIMATE
    return {
        "name": ", ".join((case_name(job.case), *where)),
        "number": estimate_text(comparison.estimate) if valid and comparison.n else record.status.value,
        "kind": kind(comparison),
        "facts": [*beside_the_speedup(comparison)] if valid else [*filter(None, [because(record)])],
    }


def _controls(timed: Sequence[Comparison]) -> str:
    """One sentence on the A/A controls; empty without them."""
    if not timed:
        return ""
    moved = sum(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in timed)
    told = f"eager differed from itself in {moved or 'none'} of {len(timed)} comparisons."
    return f"A/A control: {told}{' Expected: in none.' if moved else ''}"
