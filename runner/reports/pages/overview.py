"""The first part of report.html: the title, and each result of a small run or the counts of a larger one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PureWindowsPath
from types import MappingProxyType
from typing import NamedTuple

from harness.loading.own_model import suite_of
from harness.schema import Status
from runner.analysis.digits import estimate_text
from runner.analysis.estimate import Verdict
from runner.analysis.results import CONTROL, Comparison, Summary
from runner.analysis.texts import compiler_name
from runner.labels import case_name, counted, plain
from runner.reports.closing import because, beside_the_speedup

FEW_RESULTS = 4  # of a run whose results stand at the top one by one
FEW_SUITES = 3  # that a title names

KINDS = MappingProxyType(
    {
        Verdict.FASTER.value: "significant, and beyond the noise threshold",
        Verdict.SAME.value: "the whole 90 % interval is inside the threshold",
        Verdict.INCONCLUSIVE.value: "the data do not decide",
        Verdict.UNSTEADY.value: "the rounds have no common speedup",
        Verdict.SLOWER.value: "significant, and beyond the noise threshold",
        "wrong results": "parity failed, so the speedup does not count",
        "cannot be judged": "eager's own results do not allow a check of parity",
        "not compiled": "the compiler was not called, or captured nothing",
        "recompiles": "compiled again in every attempt at timed rounds",
        "did not run": "an error, a crash, or a limit of time or memory",
        "no verdict": "not timed",
        "approximate": "differs from eager by design",
        "skipped": "not run, for a reason of the suite",
    }
)
"""The groups into which a report sorts comparisons, with their meanings, in the order of the page."""
ALWAYS_SHOWN = (Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.SLOWER)

_OF_STATUS = MappingProxyType(
    {
        Status.FAIL_ACCURACY: "wrong results",
        Status.CANNOT_JUDGE: "cannot be judged",
        Status.EAGER_TWO_RUNS_DIFFER: "cannot be judged",
        Status.NOT_COMPILED: "not compiled",
        Status.RECOMPILES: "recompiles",
        Status.APPROXIMATE: "approximate",
        Status.SKIP: "skipped",
    }
)


class Result(NamedTuple):
    """One comparison of a small run. ``number``: the speedup, or the status if it does not count."""

    name: str
    number: str
    kind: str
    facts: tuple[str, ...]
    comparison: Comparison


def kind(comparison: Comparison) -> str:
    """Its name in ``KINDS``."""
    status = comparison.record.status
    if status.passed:
        return "no verdict" if comparison.verdict is None else comparison.verdict.value
    return _OF_STATUS.get(status, "did not run")


def counts(comparisons: Iterable[Comparison]) -> list[tuple[str, int]]:
    """The number of comparisons of each kind that there is, in the order of ``KINDS``."""
    number = Counter(kind(c) for c in comparisons)
    return [(name, number[name]) for name in KINDS if number[name]]


def candidates(summary: Summary) -> tuple[Comparison, ...]:
    """The comparisons that the report counts: without the A/A controls, unless there is nothing else."""
    return tuple(c for c in summary.comparisons if c.compiler != CONTROL) or summary.comparisons


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


def first_results(summary: Summary) -> tuple[Result, ...]:
    """Every result of a small run; () for a larger run."""
    comparisons = candidates(summary)
    return tuple(map(_result, comparisons)) if len(comparisons) <= FEW_RESULTS else ()


def _result(comparison: Comparison) -> Result:
    record, job = comparison.record, comparison.record.job
    where = (job.case.mode.value, job.dtype, job.device, compiler_name(comparison.compiler))
    valid = record.status.passed or record.status is Status.APPROXIMATE
    number = estimate_text(comparison.estimate) if valid and comparison.n else record.status.value
    facts = beside_the_speedup(comparison) if valid else filter(None, [because(record)])
    name = plain(", ".join((case_name(job.case), *where)))
    return Result(name, number, kind(comparison), tuple(facts), comparison)
