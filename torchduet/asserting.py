"""The assertions of a ``Result``. Eager as a candidate (A/A) is in none of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from harness.schema import Job, Record, Status
from runner.analysis.derive import summarize
from runner.analysis.digits import estimate_text, share_text
from runner.analysis.findings import findings
from runner.analysis.results import CONTROL, Result
from runner.analysis.texts import parity_detail
from runner.analysis.verdicts import Limits
from runner.names import job_title, plain
from runner.runs.compare.gates import Row

Again = Callable[[Job], tuple[Record, ...]] | None
OPEN = "the data do not decide (a gate of --fail-on would be open, with exit code 3)"
REASONS = {"graph_breaks": "graph_break_reasons", "recompiles": "recompile_reasons"}


def check_same(comparisons: Iterable[Result]) -> None:
    __tracebackhide__ = True  # pytest shows the line of the test instead
    fail([why for c in compiled(comparisons) if (why := not_same(c))])


def check_speed(comparisons: Iterable[Result], threshold: float | None, again: Again) -> None:
    """``threshold``: as a share; None: the noise threshold. What is slower is measured ``again``."""
    __tracebackhide__ = True
    timed = compiled(comparisons)
    fail([not_same(c) or f"{named(c)}: no step was timed" for c in timed if not has_speed(c)])
    limits = Limits.of(*(c.record.job.protocol for c in timed))
    threshold = limits.threshold if threshold is None else threshold
    limit = math.log1p(threshold)

    def slower(rows: Iterable[Row]) -> dict[str, Row]:
        return {r.records[0].candidate: r for r in rows if r.beyond(-1, limit, limits.alpha)}

    rows = [*map(speed, timed)]
    first = slower(rows)
    if first and again is not None:
        job = replace(timed[0].record.job, candidates=tuple(first))
        rerun = {c.record.candidate: c for c in summarize(again(job)).comparisons}
        second = slower(speed(c) for c in rerun.values() if has_speed(c))
        texts = {name: f"; again: {estimate_text(c.estimate)}" for name, c in rerun.items()}
    else:
        second, texts = first, {}
    by = f"slower than eager by more than {share_text(threshold)}"
    fail([f"{by}: {row.text}{texts.get(name, '')}" for name, row in first.items() if name in second])
    unsure = [f"{row.text}{texts[name]}" for name, row in first.items() if name not in second]
    for c, row in zip(timed, rows, strict=True):
        if row not in first.values() and not row.within(-1, limit):
            unsure.append(f"{row.text}; to close: {c.open.closes}" if c.open else row.text)
    for text in map(plain, unsure):
        warnings.warn(f"torchduet: {text}: not proved to be {by}, nor the opposite: {OPEN}", stacklevel=3)


def check_count(comparisons: Iterable[Result], metric: str, again: Again) -> None:
    """That the metric is 0. Its reasons are asked for ``again`` if the measurement did not."""
    __tracebackhide__ = True
    noun, lines = metric.replace("_", " "), list[str]()
    for c in compiled(comparisons):
        number = c.number(metric)
        if number is None or (not number and c.status is Status.RECOMPILES and metric == "recompiles"):
            lines.append(not_same(c) or f"{named(c)}: {noun} are not counted for this compiler")
        elif number:
            reasons = c.record.metrics.get(REASONS[metric])
            if reasons is None and again is not None:
                job, own = c.record.job, (c.record.candidate,)
                extras, protocol = replace(job.extras, explain=True), replace(job.protocol, performance=False)
                explained = again(replace(job, candidates=own, extras=extras, protocol=protocol))
                reasons = explained[0].metrics.get(REASONS[metric])
            lines.append(f"{named(c)}: {number:.0f} {noun}")
            lines += [f"    {line}" for line in str(reasons or "no reason is known").splitlines()]
    fail(lines)


def compiled(comparisons: Iterable[Result]) -> list[Result]:
    return [c for c in comparisons if c.compiler != CONTROL]


def has_speed(c: Result) -> bool:
    return c.estimate is not None and (c.passed or c.status is Status.APPROXIMATE)


def named(c: Result) -> str:
    return f"{job_title(c.record.job)}, {c.compiler}"


def not_same(c: Result) -> str:
    """Why it is not shown to compute what eager does, with the worst tensor; "" for a pass."""
    if c.status is Status.PASS:
        return ""
    if c.status in (Status.PASS_DUE_TO_SKIP, Status.APPROXIMATE):
        detail = "parity was not checked" if c.passed else f"approximate by design, {parity_detail(c)}"
        return f"{named(c)}: {detail}"
    return next((f"{f.title}: {f.cases[0]}" for f in findings([c])), f"{named(c)}: {c.status.value}")


def speed(c: Result) -> Row:
    times = f"{c.candidate_ms:.3g} ms, eager {c.baseline_ms:.3g} ms"
    text = f"{named(c)}: {estimate_text(c.estimate)}, n = {c.n} ({times})"
    return Row(text, text, (c.record,), estimate=c.estimate, q_value=c.step.q_value if c.step else None)


def fail(lines: Sequence[str]) -> None:
    __tracebackhide__ = True
    if lines:
        raise AssertionError("\n".join(map(plain, lines)))
