"""The explanation as text: one screen, why.md and why.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.analysis.digits import seconds_text, speedup_text
from runner.reports.markdown import escape, list_block, table_block
from runner.reports.parts.axes import shorten
from runner.reports.parts.grid import Table, grid_of, optional, text_for
from runner.runs.why.explain import Attempt, Share, Stage, Tested, Why
from runner.runs.why.looked import REST

if TYPE_CHECKING:
    from rich.console import Console

    from runner.analysis.comparison import Comparison

VERSION = 1  # of why.json
UNACCOUNTED = 0.1  # of a step
SHOWN_KERNELS, NAME_WIDTH = 5, 26
SMALL_MS = 0.005  # lines of the balance sheet below it are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A title with lines, or with a table."""

    title: str
    lines: tuple[str, ...] = ()
    table: Table | None = None


def verdict_text(why: Why) -> str:
    """``0.76x [0.74, 0.79], slower: 9.5 ms of a step of 39.6 ms are lost``"""
    one = why.plain
    verdict = one.verdict.value if one.verdict else "no verdict"
    text = f"{one.compiler}: {speedup_text(one.speedup, one.ci_low, one.ci_high)}, {verdict}"
    if one.baseline_ms is None or one.speedup is None:
        return text
    lost = one.baseline_ms * (1 / one.speedup - 1)
    change = f"{abs(lost):.3g} ms a step are {'lost' if lost > 0 else 'gained'}"
    return f"{text}; eager takes {one.baseline_ms:.3g} ms, {change}"


def cause_lines(why: Why) -> tuple[str, ...]:
    """The tested causes as sentences; what was found if nothing is lost."""
    if not why.lost:
        return ("The candidate is not slower than eager beyond noise, so there is no loss to explain.",)
    ordered = sorted(why.causes, key=lambda one: one.state.value)
    named = tuple(map(_cause_line, (*ordered, *([why.together] if why.together else ()))))
    why_not = "no tested setting removes a part of the loss"
    if any(one.helps for one in why.attempts):
        why_not = "a setting helps, but what is seen of its cause takes too little of the step"
    if why.unseen:
        why_not = f"the copy for looking failed ({why.unseen}), so no cause was proposed"
    return named if why.explained else (*named, f"Not explained: {why_not}.")


def _cause_line(tested: Tested) -> str:
    text = f"{tested.state.value.capitalize()}: {tested.proposal.cause}. {tested.proposal.sentence}"
    if tested.attempt is not None:
        one = tested.attempt.comparison
        text += (
            f" With {tested.attempt.setting}: {speedup_text(one.speedup, one.ci_low, one.ci_high)} of eager"
        )
        text += f", {_share_text(tested.share)} of the loss gone." if tested.share else "."
    elif tested.share is not None:
        text += f" It has {_share_text(tested.share)} of the loss."
    return f"{text} Seen: {tested.proposal.evidence}."


def _share_text(share: Share) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"


def parts(why: Why) -> Iterator[Part]:
    """All parts of the screen, in its order."""
    yield Part(title=why.title, lines=(verdict_text(why),))
    yield Part(title="Cause", lines=cause_lines(why))
    if why.balance:
        lines = unaccounted(why)
        yield Part(
            title="Balance of one step, in ms, under the profiler", lines=lines, table=balance_table(why)
        )
    if why.kernels:
        yield Part(title="Generated kernels that take longest", table=kernels_table(why))
    yield Part(title="Stages, for orientation", table=stages_table(why.stages))
    if lines := call_lines(why):
        yield Part(title="The cost of a call", lines=lines, table=call_table(why) if why.call else None)
    if why.attempts:
        yield Part(title="What to try", table=attempts_table(why.attempts))
    checks = [f"Excluded: {', '.join(why.excluded)}."]
    yield Part(title="What it is not", lines=(*checks, *(f"Not excluded: {words}." for words in why.shown)))


def overview(whys: Sequence[Why]) -> Table:
    """A row for each explained candidate, those of the same cause together; RESULTS.md has this table."""
    rows = sorted(
        (_overview_row(why) for why in whys), key=lambda row: (row[3] == "", row[3] != "explained", *row[2:3])
    )
    header = ("model", "speedup [95 %]", "cause", "", "share of the loss", "setting", "with it", "parity")
    return Table(header=header, rows=tuple(rows))


def overview_text(whys: Sequence[Why]) -> str:
    return _block(overview(whys))


def _overview_row(why: Why) -> tuple[str, ...]:
    """The cause with the largest share; all causes that act, where they were tested together."""
    first = (why.title, f"{_speedup(why.plain)}, {why.plain.verdict.value if why.plain.verdict else ''}")
    if not why.lost:
        return (*first, "no loss", "", "", "", "", "")
    tested = why.together
    if tested is None or tested.share is None:
        ordered = sorted(
            why.causes, key=lambda one: (one.state.value, -(one.share.value if one.share else 0.0))
        )
        tested = ordered[0] if ordered else None
    if tested is None:
        return (*first, "not explained", "", "", "", "", "")
    share = _share_text(tested.share) if tested.share else ""
    attempt = tested.attempt
    if attempt is None:
        return (*first, tested.proposal.cause, tested.state.value, share, "", "", "")
    with_it = _speedup(attempt.comparison), attempt.comparison.status.value
    return (*first, tested.proposal.cause, tested.state.value, share, attempt.setting, *with_it)


def _speedup(one: Comparison) -> str:
    return speedup_text(one.speedup, one.ci_low, one.ci_high)


def balance_table(why: Why) -> Table:
    total = tuple(sum(both[side] for both in why.balance.values()) for side in (0, 1))
    lines = [(line, both) for line, both in why.balance.items() if max(map(abs, both)) >= SMALL_MS]
    rows = tuple(
        (line, f"{eager:.3g}", f"{compiled:.3g}", f"{compiled - eager:+.3g}")
        for line, (eager, compiled) in (*lines, ("step", total))
    )
    return Table(header=("", "eager", "compiled", "change"), rows=rows, numbers=(False, True, True, True))


def unaccounted(why: Why) -> tuple[str, ...]:
    """A sentence where the balance lacks more of a step than ``UNACCOUNTED``."""
    steps = [sum(both[side] for both in why.balance.values()) for side in (0, 1)]
    shares = [rest / step if step else 0.0 for rest, step in zip(why.balance[REST], steps, strict=True)]
    if max(map(abs, shares)) <= UNACCOUNTED:
        return ()
    return (f"Not accounted: {shares[0]:.0%} of eager's step, {shares[1]:.0%} of the compiled step.",)


def kernels_table(why: Why) -> Table:
    rows = tuple(
        (shorten(name, NAME_WIDTH), f"{ms:.3g}", signs, shorten(lines, NAME_WIDTH))
        for name, ms, signs, lines in why.kernels[:SHOWN_KERNELS]
    )
    return Table(header=("kernel", "ms", "signs", "the model's lines"), rows=rows)


def stages_table(stages: Sequence[Stage]) -> Table:
    rows = [(one.name, one.over, speedup_text(one.speedup, one.low, one.high)) for one in stages]
    halves = [one.halves_ms for one in stages]
    header: tuple[str, ...] = ("stage", "over", "speedup [95 %]")
    if all(halves) and halves:
        header = (*header, "forward ms", "backward ms")
        more = [tuple(f"{ms:.3g}" for ms in both or ()) for both in halves]
        return Table(header=header, rows=tuple((*a, *b) for a, b in zip(rows, more, strict=True)))
    return Table(header=header, rows=tuple(rows))


def call_lines(why: Why) -> tuple[str, ...]:
    count, us = (why.plain.number(name) for name in ("guards", "guard_check_us"))
    if count is None or us is None:
        return ()
    return (f"{count:g} guards; {us:.3g} us a step when only they run, in a loop.",)


def call_table(why: Why) -> Table:
    step_us = (why.plain.candidate_ms or 0.0) * 1e3
    rows = tuple(
        (
            span.name,
            f"{span.us:.3g} [{span.low:.3g}, {span.high:.3g}]",
            f"{span.us / step_us:.2%}" if step_us else "",
        )
        for span in why.call
    )
    return Table(header=("", "us a step [95 %]", "of the step"), rows=rows)


def attempts_table(attempts: Sequence[Attempt]) -> Table:
    """The largest effect first."""
    ordered = sorted(attempts, key=lambda one: -((one.over_plain and one.over_plain.speedup) or 0.0))
    rows = tuple(
        (
            one.setting,
            optional(one.over_plain, lambda pair: speedup_text(pair.speedup, pair.ci_low, pair.ci_high)),
            speedup_text(one.comparison.speedup, one.comparison.ci_low, one.comparison.ci_high),
            one.comparison.status.value,
            optional(one.comparison.compile_s, seconds_text),
            "yes" if one.helps else "no",
        )
        for one in ordered
    )
    return Table(header=("setting", "over plain", "over eager", "parity", "compile s", "helps"), rows=rows)


def show(why: Why, console: Console) -> None:
    """One screen."""
    for part in parts(why):
        console.print()
        console.print(text_for(console, part.title, "bold"))
        for line in part.lines:
            console.print(text_for(console, f"  {line}"))
        if part.table is not None:
            console.print(grid_of(console, part.table, lambda *_: ""))


def markdown(whys: Sequence[Why]) -> str:
    """why.md: all models in one table, by cause; then the same parts for each."""
    blocks = [overview_text(whys)] if len(whys) > 1 else []
    for part in (part for why in whys for part in parts(why)):
        blocks.append(f"{'##' if part.title in [why.title for why in whys] else '###'} {escape(part.title)}")
        if part.lines:
            blocks.append(list_block(part.lines).within(1 << 20))
        if part.table is not None:
            blocks.append(_block(part.table))
    return "\n\n".join(blocks) + "\n"


def _block(table: Table) -> str:
    return table_block(table.header, table.rows, len(table.rows), table.numbers).within(1 << 20)


def as_json(whys: Sequence[Why]) -> dict[str, Any]:
    """why.json: for programs. Ratios are not rounded; a missing number is null."""
    return {"version": VERSION, "explanations": [_one(why) for why in whys]}


def _one(why: Why) -> dict[str, Any]:
    return {
        "job": why.plain.record.job.key,
        "candidate": why.plain.record.candidate,
        "verdict": why.plain.verdict.value if why.plain.verdict else None,
        "speedup": _ratio(why.plain),
        "baseline_ms": why.plain.baseline_ms,
        "causes": [_cause(tested) for tested in why.causes],
        "together": _cause(why.together) if why.together else None,
        "stages": [
            {
                "stage": one.name,
                "over": one.over,
                "speedup": [one.speedup, one.low, one.high],
                "halves_ms": one.halves_ms,
            }
            for one in why.stages
        ],
        "guards": why.plain.number("guards"),
        "guard_check_us": why.plain.number("guard_check_us"),
        "call_us": {one.name: [one.us, one.low, one.high] for one in why.call},
        "tried": [
            {
                "setting": one.setting,
                "over_plain": _ratio(one.over_plain) if one.over_plain else None,
                "over_eager": _ratio(one.comparison),
                "status": one.comparison.status.value,
                "compile_s": one.comparison.compile_s,
                "helps": one.helps,
            }
            for one in why.attempts
        ],
        "excluded": list(why.excluded),
        "not_excluded": list(why.shown),
        "kernels": [{"name": n, "ms": ms, "signs": s, "lines": lines} for n, ms, s, lines in why.kernels],
        "balance_ms": {line: {"eager": e, "compiled": c} for line, (e, c) in why.balance.items()},
    }


def _cause(tested: Tested) -> dict[str, Any]:
    return {
        "cause": tested.proposal.cause,
        "state": tested.state.value,
        "sentence": tested.proposal.sentence,
        "evidence": tested.proposal.evidence,
        "setting": tested.attempt.setting if tested.attempt else None,
        "share": [tested.share.value, tested.share.low, tested.share.high] if tested.share else None,
    }


def _ratio(one: Any) -> list[float | None]:
    return [one.speedup, one.ci_low, one.ci_high]
