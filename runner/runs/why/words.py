"""The explanation as text: one screen, why.md and why.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.analysis.digits import estimate_text, ms_text, seconds_text, significant
from runner.analysis.estimate import Estimate, Verdict
from runner.reports.markdown import escape, list_block, table_block
from runner.reports.parts.grid import Table, grid_of, optional, text_for
from runner.reports.parts.pictures import shorten
from runner.runs.why.explain import Attempt, Ends, Stage, Tested, Why, gain
from runner.runs.why.looked import REST

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1  # of why.json
UNACCOUNTED = 0.1  # of a step
ENDLESS = 1 << 20  # bytes of a table of why.md
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
    plain = why.plain
    verdict = plain.verdict.value if plain.verdict else "no verdict"
    parity = "" if plain.passed else f", {plain.status.value}"
    text = f"{plain.compiler}: {estimate_text(plain.estimate)}, {verdict}{parity}"
    if plain.baseline_ms is None or plain.speedup is None:
        return text
    lost = plain.baseline_ms * (1 / plain.speedup - 1)
    change = f"{ms_text(abs(lost))} ms a step are {'lost' if lost > 0 else 'gained'}"
    return f"{text}; eager takes {ms_text(plain.baseline_ms)} ms, {change}"


def cause_lines(why: Why) -> tuple[str, ...]:
    """The tested causes as sentences; what was found if nothing is lost."""
    if not why.lost:
        if why.plain.verdict not in (Verdict.FASTER, Verdict.SAME):
            return ("Whether the candidate is slower than eager is open, so no loss is explained.",)
        return ("The candidate is not slower than eager beyond noise, so there is no loss to explain.",)
    ordered = sorted(why.causes, key=lambda cause: cause.state.value)
    named = tuple(map(_cause_line, (*ordered, *([why.together] if why.together else ()))))
    why_not = "no tested setting is faster than the plain candidate beyond the noise threshold"
    if not why.attempts:
        why_not = "no cause with a setting was seen, so no setting was tested"
    if any(attempt.helps for attempt in why.attempts):
        little = "a setting helps, but what is seen of its cause takes too little of the step"
        why_not = little if why.causes else "settings were tested, not causes"
    if why.attempts and not why.plain.passed:
        why_not = f"the plain candidate is {why.plain.status.value}, so no setting is compared with it"
    if why.unseen:
        why_not = f"the copy for looking failed ({why.unseen}), so no cause was proposed"
    return named if why.explained else (*named, f"Not explained: {why_not}.")


def _cause_line(tested: Tested) -> str:
    proposal, share = tested.proposal, tested.share
    sentences = [f"{tested.state.value.capitalize()}: {proposal.cause}.", proposal.sentence]
    if tested.attempt is not None:
        estimate = estimate_text(tested.attempt.comparison.estimate)
        gone = f", {_share_text(share)} of the loss gone" if share else ""
        sentences.append(f"With {tested.attempt.setting}: {estimate} of eager{gone}.")
    elif share is not None:
        sentences.append(f"It has {_share_text(share)} of the loss.")
    if proposal.evidence:
        sentences.append(f"Seen: {proposal.evidence}.")
    return " ".join(filter(None, sentences))


def _share_text(share: Ends) -> str:
    return "{:.0%} [{:.0%}, {:.0%}]".format(*share)


def parts(why: Why) -> Iterator[Part]:
    """All parts of the screen, in its order."""
    yield Part(title=why.title, lines=(verdict_text(why),))
    yield Part(title="Cause", lines=cause_lines(why))
    if why.balance:
        title = "Balance of one step, in ms, under the profiler"
        yield Part(title=title, lines=unaccounted(why), table=balance_table(why))
    if why.kernels:
        yield Part(title="Generated kernels that take longest", table=kernels_table(why))
    yield Part(title="Stages, for orientation", table=stages_table(why.stages))
    if lines := call_lines(why):
        yield Part(title="The cost of a call", lines=lines, table=call_table(why) if why.call else None)
    if why.attempts:
        yield Part(title="What to try", table=attempts_table(why.attempts))
    checks = [f"Other causes are excluded: {', '.join(why.excluded)}."]
    yield Part(title="What it is not", lines=(*checks, *(f"Not excluded: {words}." for words in why.shown)))


def overview(whys: Sequence[Why]) -> Table:
    """A row for each explained candidate, those of the same cause together; RESULTS.md has this table."""
    rows = sorted(
        (_overview_row(why) for why in whys), key=lambda row: (row[3] == "", row[3] != "explained", *row[2:3])
    )
    header = ("model", "speedup [95 %]", "cause", "", "share of the loss", "setting", "with it", "parity")
    return Table(header=header, rows=tuple(rows))


def overview_text(whys: Sequence[Why]) -> str:
    return table_block(overview(whys)).within(ENDLESS)


def _overview_row(why: Why) -> tuple[str, ...]:
    """The cause with the largest share; all causes that act, where they were tested together."""
    verdict = why.plain.verdict.value if why.plain.verdict else ""
    first = (why.title, f"{estimate_text(why.plain.estimate)}, {verdict}")
    if not why.lost:
        return (*first, "no loss", *[""] * 5)
    ordered = sorted(why.causes, key=lambda c: (c.state.value, -c.share.value if c.share else 0.0))
    if why.together is not None and why.together.share is not None:
        ordered = [why.together]
    if not ordered:
        return (*first, "not explained", *[""] * 5)
    tested, attempt = ordered[0], ordered[0].attempt
    share = _share_text(tested.share) if tested.share else ""
    named = (*first, tested.proposal.cause, tested.state.value, share)
    if attempt is None:
        return (*named, "", "", "")
    with_it = estimate_text(attempt.comparison.estimate), attempt.comparison.status.value
    return (*named, attempt.setting, *with_it)


def balance_table(why: Why) -> Table:
    total = tuple(sum(both[side] for both in why.balance.values()) for side in (0, 1))
    lines = [(line, both) for line, both in why.balance.items() if max(map(abs, both)) >= SMALL_MS]
    rows = tuple(
        (line, ms_text(eager), ms_text(compiled), _signed(compiled - eager))
        for line, (eager, compiled) in (*lines, ("step", total))
    )
    return Table(header=("", "eager", "compiled", "change"), rows=rows, numbers=(False, True, True, True))


def _signed(ms: float) -> str:
    return f"{'-' if ms < 0 else '+'}{ms_text(abs(ms))}"


def unaccounted(why: Why) -> tuple[str, ...]:
    """A sentence where the balance lacks more of a step than ``UNACCOUNTED``."""
    steps = [sum(both[side] for both in why.balance.values()) for side in (0, 1)]
    shares = [rest / step if step else 0.0 for rest, step in zip(why.balance[REST], steps, strict=True)]
    if max(map(abs, shares)) <= UNACCOUNTED:
        return ()
    return (f"Not accounted: {shares[0]:.0%} of eager's step, {shares[1]:.0%} of the compiled step.",)


def kernels_table(why: Why) -> Table:
    rows = tuple(
        (shorten(name, NAME_WIDTH), ms_text(ms), signs, shorten(lines, NAME_WIDTH))
        for name, ms, signs, lines in why.kernels[:SHOWN_KERNELS]
    )
    return Table(header=("kernel", "ms", "signs", "the model's lines"), rows=rows)


def stages_table(stages: Sequence[Stage]) -> Table:
    rows = [(stage.name, stage.over, estimate_text(stage.estimate)) for stage in stages]
    halves = [tuple(ms_text(ms) for ms in stage.halves_ms or ()) for stage in stages]
    header = ("stage", "over", "speedup [95 %]")
    if not stages or not all(halves):
        return Table(header=header, rows=tuple(rows))
    both = tuple((*row, *more) for row, more in zip(rows, halves, strict=True))
    return Table(header=(*header, "forward ms", "backward ms"), rows=both)


def call_lines(why: Why) -> tuple[str, ...]:
    count, us = (why.plain.number(name) for name in ("guards", "guard_check_us"))
    if count is None or us is None:
        return ()
    return (f"{count:g} guards; {significant(us, 3)} us a step when only they run, in a loop.",)


def call_table(why: Why) -> Table:
    step_us = (why.plain.candidate_ms or 0.0) * 1e3
    rows = tuple(
        (
            name,
            "{} [{}, {}]".format(*(significant(end, 3) for end in us)),
            f"{us.value / step_us:.2%}" if step_us else "",
        )
        for name, us in why.call.items()
    )
    return Table(header=("", "us a step [95 %]", "of the step"), rows=rows)


def attempts_table(attempts: Sequence[Attempt]) -> Table:
    """The largest effect first."""
    ordered = sorted(attempts, key=gain, reverse=True)
    rows = tuple(
        (
            attempt.setting,
            estimate_text(attempt.over_plain.estimate if attempt.over_plain else None),
            estimate_text(attempt.comparison.estimate),
            attempt.comparison.status.value,
            optional(attempt.comparison.compile_s, seconds_text),
            "yes" if attempt.helps else "no",
        )
        for attempt in ordered
    )
    return Table(header=("setting", "over plain", "over eager", "parity", "compile s", "helps"), rows=rows)


def show(why: Why, console: Console) -> None:
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
            blocks.append(list_block(part.lines).within(ENDLESS))
        if part.table is not None:
            blocks.append(table_block(part.table).within(ENDLESS))
    return "\n\n".join(blocks) + "\n"


def as_json(whys: Sequence[Why]) -> dict[str, Any]:
    """why.json: for programs. Ratios are not rounded; a missing number is null."""
    return {"version": VERSION, "explanations": [_explanation(why) for why in whys]}


def _explanation(why: Why) -> dict[str, Any]:
    return {
        "job": why.plain.record.job.key,
        "candidate": why.plain.record.candidate,
        "verdict": why.plain.verdict.value if why.plain.verdict else None,
        "speedup": _ends(why.plain.estimate),
        "baseline_ms": why.plain.baseline_ms,
        "causes": [_cause(tested) for tested in why.causes],
        "together": _cause(why.together) if why.together else None,
        "stages": [
            {"stage": s.name, "over": s.over, "speedup": _ends(s.estimate), "halves_ms": s.halves_ms}
            for s in why.stages
        ],
        "guards": why.plain.number("guards"),
        "guard_check_us": why.plain.number("guard_check_us"),
        "call_us": {name: list(us) for name, us in why.call.items()},
        "tried": [
            {
                "setting": attempt.setting,
                "over_plain": _ends(attempt.over_plain.estimate) if attempt.over_plain else None,
                "over_eager": _ends(attempt.comparison.estimate),
                "status": attempt.comparison.status.value,
                "compile_s": attempt.comparison.compile_s,
                "helps": attempt.helps,
            }
            for attempt in why.attempts
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
        "share": list(tested.share) if tested.share else None,
    }


def _ends(estimate: Estimate | None) -> list[float | None]:
    return [None] * 3 if estimate is None else [estimate.factor, estimate.low, estimate.high]
