"""The last lines of a run: the answer for each result or, of many results, for each group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.schema import Record, Status
from runner.analysis.digits import estimate_text, seconds_text, steps_text
from runner.analysis.results import CONTROL, Curve, GroupSummary, Result, Summary
from runner.analysis.texts import NOT_CHECKED, compiler_name, failures, mean_text, parity_word, verdict_text
from runner.analysis.verdicts import BreakEven
from runner.names import case_name, counted, cut, plain, reason, where
from runner.reports.parts.curves import crossing_text, range_text
from runner.reports.parts.sections import Section, sections

MOST_LINES = 12  # results with a line of their own
LONGEST_REASON = 130
OPEN = "Open verdicts"  # the title of their warning


def closing_lines(summary: Summary, most: int = MOST_LINES) -> tuple[str, ...]:
    """One line for each curve and other result; with more than ``most``, one for each group.

    The A/A control has a line only if nothing else was measured.
    """
    only_controls = all(c.compiler == CONTROL for c in summary.comparisons)
    parts = sections(summary)
    curves = [c for c in summary.curves if only_controls or c.comparisons[0].compiler != CONTROL]
    curves = curves if len(curves) <= most else []
    drawn = {id(comparison) for curve in curves for comparison in curve.comparisons}
    results = [
        (part, comparison)
        for part in parts
        for comparison in part.comparisons
        if (only_controls or comparison.compiler != CONTROL) and id(comparison) not in drawn
    ]
    if len(results) <= most:
        return (*map(_of_curve, curves), *(_of_result(parts, *result) for result in results))
    groups: dict[tuple[str, str], tuple[Section, list[Result]]] = {}
    for part, comparison in results:
        groups.setdefault((part.title, comparison.compiler), (part, []))[1].append(comparison)
    return (*map(_of_curve, curves), *(_of_group(parts, part, members) for part, members in groups.values()))


def ending(summary: Summary, *, full: bool) -> Iterator[str]:
    """What was wrong, crashed or is open, other warnings, and limits: a line each.

    ``full``: the warnings and the limits themselves are above it.
    """
    for word, own in failures(summary.comparisons).items():
        names = [f"{case_name(c.record.job.case)} {plain(c.compiler)} ({c.status.value})" for c in own]
        if names:
            yield f"{word.capitalize()} {len(own)}: {'; '.join(names)}"
    if full:
        return
    reasons = Counter(c.open.reason.value for c in summary.comparisons if c.open is not None)
    if reasons:
        counts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        yield f"Open {reasons.total()} ({counts}): --processes and --repeat close them"
    told = tuple(f"{where(c.record, summary.labels)}: " for c in summary.comparisons if not c.passed)
    others = [f for f in summary.warnings if f.title != OPEN and not all(c.startswith(told) for c in f.cases)]
    if others:
        titles = (f"{finding.title.partition(' (')[0]} {len(finding.cases)}" for finding in others)
        yield f"Warnings: {'; '.join(titles)}"
    if summary.caveats:
        yield f"Limits: {counted(len(summary.caveats), 'note')} in report.md; --explain prints them"


def _of_curve(curve: Curve) -> str:
    """``branch training float32 cpu, inductor over batch 1 to 64: faster from batch 6 [4, 8]; 5/5 pass``"""
    first = curve.comparisons[0]
    job, compiler = first.record.job, compiler_name(first.compiler)
    model = plain(" ".join((case_name(curve.case), job.case.mode.value, job.dtype, first.device)))
    passed = sum(comparison.passed for comparison in curve.comparisons)
    rate = f"{passed}/{len(curve.comparisons)} pass"
    return f"{model}, {compiler} over {range_text(curve)}: {crossing_text(curve)}; {rate}"


def _name(parts: Sequence[Section], part: Section, comparison: Result, model: str = "") -> str:
    """``tiny_gpt NanoGPT training float32, inductor``: suite and device if the run has several."""
    suite = part.suite if len({section.suite for section in parts}) > 1 else ""
    device = part.device if len({section.device for section in parts}) > 1 else ""
    words = filter(None, (suite, model, part.mode, part.dtype, device))
    return f"{plain(' '.join(words))}, {compiler_name(comparison.compiler)}"


def _of_result(parts: Sequence[Section], part: Section, comparison: Result) -> str:
    """``branch training float32, inductor: faster, 1.2x [1.1, 1.3], compiles in 9.12 s, parity pass``"""
    model = case_name(comparison.record.job.case)
    return f"{_name(parts, part, comparison, model)}: {', '.join(_facts(comparison))}"


def _facts(comparison: Result) -> Iterator[str]:
    record = comparison.record
    speedup = estimate_text(comparison.estimate)
    if not record.status.passed and record.status is not Status.APPROXIMATE:
        why = because(record)
        yield f"{record.status.value} ({why})" if why else record.status.value
        if comparison.speedup is not None:
            yield f"so {speedup} does not count"
        return
    if comparison.verdict is not None:
        why = f" ({comparison.open.reason.value})" if comparison.open is not None else ""
        yield f"{verdict_text(comparison, counts=True)}{why}"
        yield speedup
    yield from beside_the_speedup(comparison)


def beside_the_speedup(comparison: Result) -> Iterator[str]:
    """The compilation time, parity and the steps until compilation pays."""
    if comparison.compiler != CONTROL and comparison.compile_s is not None:
        beside = " beside other jobs" if comparison.value("prepared_beside") else ""
        yield f"compiles in {seconds_text(comparison.compile_s)} s{beside}"
    yield f"parity {parity_word(comparison.record)}"
    if comparison.break_even is not None and not comparison.record.job.extras.shapes:
        yield paying_text(comparison.break_even)


def paying_text(known: BreakEven) -> str:
    """``pays after 5,500 steps``; where the interval contains *never*, that it may never pay."""
    after = {
        "yes": f"pays after {steps_text(known.steps)} steps",
        "open": f"may never pay, and not before {steps_text(known.low)} steps",
    }
    return after.get(known.pays, "never pays")


def because(record: Record) -> str:
    """Why the record did not pass, in a few words; empty if it does not say."""
    parity, failure = record.parity, record.failure
    if failure is not None:
        kind = "" if record.status is Status.NOT_COMPILED else f"{failure.kind}: "
        text = reason(f"{kind}{failure.message}")
    elif parity is not None and parity.failed:
        text = f"{parity.failed} of {parity.tensors} tensors differ too much"
    else:
        return ""
    return cut(text, LONGEST_REASON)


def _of_group(parts: Sequence[Section], part: Section, members: list[Result]) -> str:
    """``training float32, inductor: 18 models: 12 faster, 1 slower, 5 inconclusive; 17/18 pass, 1 crash``"""
    first = members[0]
    if len(members) == 1:
        return _of_result(parts, part, first)
    group = next((group for group in part.groups if group.compiler == first.compiler), None)
    facts = "; ".join(_group_facts(members, group))
    noun = "point" if first.record.job.case.point else "model"
    return f"{_name(parts, part, first)}: {counted(len(members), noun)}: {facts}"


def _group_facts(members: list[Result], group: GroupSummary | None) -> Iterator[str]:
    verdicts = group.verdicts if group else {}
    counts = [f"{count} {word}" for word, count in verdicts.items() if count]
    if counts:
        yield ", ".join(counts)
    if group and group.mean.models > 1:
        yield f"geometric mean {mean_text(group.mean)}"
        if (latency := group.means["compilation_latency_s"].value) is not None:
            yield f"compile in {seconds_text(latency)} s on average"
    if group and group.break_even.models > 1:
        yield f"compiling pays for {group.break_even.pays}/{group.break_even.models}"
    words = Counter(parity_word(c.record) for c in members)
    passed, unchecked = words.pop(Status.PASS.value, 0), words.pop(NOT_CHECKED, 0)
    ran = (
        f"{unchecked}/{len(members)} ran, parity not checked"
        if unchecked
        else f"{passed}/{len(members)} pass"
    )
    yield ", ".join((ran, *(f"{count} {word}" for word, count in words.items())))
