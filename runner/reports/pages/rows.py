"""What report.html shows of the results: those at its beginning, and the rows of its table."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PureWindowsPath
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from harness.loading.own_model import suite_of
from harness.schema import Scalar, Status
from runner.analysis.columns import Column, columns
from runner.analysis.digits import MISSING, estimate_text
from runner.analysis.results import CONTROL, Estimate, Result, Summary
from runner.analysis.texts import compiler_name, mean_text
from runner.analysis.verdicts import Verdict
from runner.names import case_name, counted, plain
from runner.reports.closing import because, beside_the_speedup
from runner.reports.parts.grid import Number
from runner.reports.parts.sections import environment_line

FEW_RESULTS = 4  # of a run whose results stand at the top one by one
FEW_SUITES = 3  # that a title names
ENDLESS = sys.float_info.max  # stands for infinity, which JSON lacks; sorts after all numbers
LEFT_OUT = ("parameters", "input_shapes", "p_value", "worst_error")  # shown in the panel of the case
CONDITIONS = ("suite", "precision", "mode", "device")  # filters that are columns, too
IF_THEY_DIFFER = (*CONDITIONS, "status")  # omitted if all rows have the same

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


def kind(comparison: Result) -> str:
    """Its name in ``KINDS``."""
    status = comparison.record.status
    if status.passed:
        return "no verdict" if comparison.verdict is None else comparison.verdict.value
    return next((name for name, (_, statuses) in KINDS.items() if status in statuses), "did not run")


def counts(comparisons: Iterable[Result]) -> dict[str, int]:
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


def _result(comparison: Result) -> dict[str, Any]:
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


def _controls(timed: Sequence[Result]) -> str:
    """One sentence on the A/A controls; empty without them."""
    if not timed:
        return ""
    moved = sum(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in timed)
    told = f"eager differed from itself in {moved or 'none'} of {len(timed)} comparisons."
    return f"A/A control: {told}{' Expected: in none.' if moved else ''}"


# -- the table ------------------------------------------------------------------------------


def identities(summary: Summary) -> Iterator[str]:
    """A name for each comparison that stays the same when the report is built again."""
    seen: Counter[str] = Counter()
    for comparison in summary.comparisons:
        name = plain(f"{comparison.record.job.key}/{comparison.record.candidate}")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}~{seen[name]}"


def _facets(summary: Summary) -> tuple[Column[Result], ...]:
    """The filters. Their names are in the page's address."""
    labels = summary.labels
    values: Mapping[str, Callable[[Result], str]] = {
        "suite": lambda c: labels[c.record.job.case.suite],
        "compiler": lambda c: compiler_name(c.compiler),
        "precision": lambda c: plain(c.record.job.dtype),
        "mode": lambda c: c.record.job.case.mode.value,
        "device": lambda c: plain(c.device),
        "scale": lambda c: plain(c.record.job.case.scale),
        "environment": lambda c: environment_line(c.record.environment),
        "verdict": kind,
        "status": lambda c: c.record.status.value,
    }
    return tuple(Column(name, "text", value, header=name, drop=1) for name, value in values.items())


def table_data(summary: Summary) -> dict[str, Any]:
    """The data that the page reads when it opens: columns, facets with their values, rows, averages."""
    rows, facets = summary.comparisons, _facets(summary)
    model, *others = (c for c in columns().values() if c.header and c.name not in LEFT_OUT)
    every = (model, *(facet for facet in facets if facet.name in CONDITIONS), *others)
    texts = {column: [column.cell(row) for row in rows] for column in (*facets, *every)}
    says = {c: {*texts[c]} != {MISSING} and c.name not in IF_THEY_DIFFER for c in every}
    shown = [c for c in every if not c.drop or says[c] or len({*texts[c]}) > 1]
    values = {facet: [*dict.fromkeys(texts[facet])] for facet in facets}
    places = {facet: {text: place for place, text in enumerate(values[facet])} for facet in facets}
    thresholds = {c.record.job.protocol.noise_threshold for c in rows}
    return {
        "columns": [
            {
                "key": column.name,
                "header": column.header.replace("\n", " "),
                "sorted": column.dtype != "string",  # by its values
                "number": column.is_number,
                "wide": column.drop > 0,  # omitted on a phone
            }
            for column in shown
        ],
        "facets": [{"key": facet.name, "values": values[facet]} for facet in facets],
        "kinds": list(KINDS),
        "threshold": thresholds.pop() if len(thresholds) == 1 else None,
        "rows": [
            {
                "id": name,
                "facets": [places[facet][texts[facet][place]] for facet in facets],
                "texts": [texts[column][place] for column in shown],
                "values": [None if c.dtype == "string" else short(c.value(row)) for c in shown],
                "plot": [short(x) for x in (*_ends(row.estimate), _compile_in_steps(row))],
            }
            for place, (name, row) in enumerate(zip(identities(summary), rows, strict=True))
        ],
        "means": list(_means(summary)),
    }


def _means(summary: Summary) -> Iterator[dict[str, Any]]:
    """The geometric means of the forest plot, with the facets that select them."""
    for group in summary.groups:
        suite, *others = group.place
        if (text := mean_text(group.mean)) != MISSING:
            where = zip(("mode", "precision", "device"), map(plain, others), strict=True)
            facets = {
                "suite": summary.labels[suite],
                "compiler": compiler_name(group.compiler),
                **dict(where),
            }
            plot = [short(x) for x in _ends(group.mean.over)]
            yield {"facets": facets, "models": group.mean.models, "text": text, "plot": plot}


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (estimate.factor, estimate.low, estimate.high) if estimate else (None, None, None)


def _compile_in_steps(comparison: Result) -> float | None:
    """The x of the break-even chart: compilation latency / time of an eager step."""
    if not comparison.compile_s or not comparison.baseline_ms:
        return None
    return comparison.compile_s / (comparison.baseline_ms / 1e3)


def short(value: Scalar) -> Number:
    """Six significant digits, which suffice for charts and sorting."""
    if value is None or isinstance(value, str | int):
        return None if isinstance(value, str) else value
    return float(f"{value:.6g}") if math.isfinite(value) else math.copysign(ENDLESS, value)
