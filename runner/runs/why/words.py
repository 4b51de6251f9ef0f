"""The explanation as sentences and tables, in the order of ``VIEWS``: one screen, why.md and why.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from runner.analysis.columns import JSON as LISTED
from runner.analysis.columns import Column, text_column, values
from runner.analysis.digits import estimate_text, ms_text, significant
from runner.analysis.results import Estimate, Finding, Ratio
from runner.analysis.verdicts import Verdict
from runner.reports.console import Writer
from runner.reports.markdown import escape, fitted, table_block, text, view_blocks
from runner.reports.parts.grid import Table
from runner.reports.parts.pictures import shorten
from runner.reports.parts.view import TABLES, Lists, View
from runner.runs.why.explain import Ends, Tested, Tried, Why
from runner.runs.why.looked import REST, Kernel

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
Both = tuple[str, tuple[float, float]]
"""A line of the balance sheet: ms of eager's step and of the compiled step."""

# History of why.json:
#   1  2026-11  first version
#   2  2026-11  a missing value of a row has no name; a stage has ``forward_ms``, not ``halves_ms``
VERSION = 2
UNACCOUNTED = 0.1  # of a step
ENDLESS = 1 << 20  # bytes of why.md
SHOWN_KERNELS, NAME_WIDTH = 5, 26
SMALL_MS = 0.005  # lines of the balance sheet below it are left out


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
    ordered = sorted(why.causes, key=lambda cause: cause.state)
    named = tuple(map(_cause_line, (*ordered, *([why.together] if why.together else ()))))
    why_not = "no tested setting is faster than the plain candidate beyond the noise threshold"
    if not why.attempts:
        why_not = "no cause with a setting was seen, so no setting was tested"
    elif not why.plain.passed:
        why_not = f"the plain candidate is {why.plain.status.value}, so no setting is compared with it"
    elif any(attempt.helps for attempt in why.attempts):
        little = "a setting helps, but what is seen of its cause takes too little of the step"
        why_not = little if why.causes else "settings were tested, not causes"
    if why.unseen:
        why_not = f"the copy for looking failed ({why.unseen}), so no cause was proposed"
    return named if why.explained else (*named, f"Not explained: {why_not}.")


def _cause_line(tested: Tested) -> str:
    proposal, share = tested.proposal, tested.share
    sentences = [f"{tested.state.capitalize()}: {proposal.cause}.", proposal.sentence]
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
    ordered = sorted(why.causes, key=lambda c: (c.state, -c.share.value if c.share else 0.0))
    if why.together is not None and why.together.share is not None:
        ordered = [why.together]
    if not (why.lost and ordered):
        return (*first, "not explained" if why.lost else "no loss", *[""] * 5)
    tested, attempt = ordered[0], ordered[0].attempt
    named = (*first, tested.proposal.cause, tested.state, _share_text(tested.share) if tested.share else "")
    if attempt is None:
        return (*named, "", "", "")
    with_it = attempt.comparison
    return (*named, attempt.setting, estimate_text(with_it.estimate), with_it.status.value)


# -- tables --------------------------------------------------------------------------


def _ratio(name: str, header: str, of: Callable[[T], Estimate | None]) -> Column[T]:
    """A ratio with its interval: a text in tables, a list in why.json."""
    return Column(name, LISTED, lambda row: _ends(of(row)), header, lambda row: estimate_text(of(row)))


def _ends(estimate: Estimate | None) -> list[float | None] | None:
    return None if estimate is None else [estimate.factor, estimate.low, estimate.high]


def _steps(why: Why) -> tuple[float, float]:
    eager, compiled = (sum(both[side] for both in why.balance.values()) for side in (0, 1))
    return eager, compiled


def _change(row: Both) -> str:
    ms = row[1][1] - row[1][0]
    return f"{'-' if ms < 0 else '+'}{ms_text(abs(ms))}"


def unaccounted(why: Why) -> tuple[str, ...]:
    """A sentence where the balance lacks more of a step than ``UNACCOUNTED``."""
    shares = [rest / step if step else 0.0 for rest, step in zip(why.balance[REST], _steps(why), strict=True)]
    if max(map(abs, shares)) <= UNACCOUNTED:
        return ()
    return (f"Not accounted: {shares[0]:.0%} of eager's step, {shares[1]:.0%} of the compiled step.",)


def call_lines(why: Why) -> tuple[str, ...]:
    count, us = (why.plain.number(name) for name in ("guards", "guard_check_us"))
    if count is None or us is None:
        return ()
    return (f"{count:g} guards; {significant(us, 3)} us a step when only they run, in a loop.",)


def _of_call(why: Why) -> Iterator[Column[tuple[str, Ends]]]:
    step_us = (why.plain.candidate_ms or 0.0) * 1e3
    yield text_column("part", lambda row: row[0])
    span = "{} [{}, {}]".format
    yield text_column("us a step [95 %]", lambda row: span(*(significant(end, 3) for end in row[1])))
    yield text_column("of the step", lambda row: f"{row[1].value / step_us:.2%}" if step_us else "")


def _lines(name: str, title: str, lines: Callable[[Why], tuple[str, ...]]) -> Lists[Why]:
    return Lists(name, title, lambda why: [Finding(title="", cases=own)] if (own := lines(why)) else [])


def _checks(why: Why) -> tuple[str, ...]:
    excluded = f"Other causes are excluded: {', '.join(why.excluded)}."
    return (excluded, *(f"Not excluded: {words}." for words in why.shown))


BALANCE: View[Why, Both] = View(
    name="balance",
    title="Balance of one step, in ms, under the profiler",
    rows=lambda why: [
        *(row for row in why.balance.items() if max(map(abs, row[1])) >= SMALL_MS),
        *([("step", _steps(why))] if why.balance else ()),
    ],
    columns=lambda _: (
        text_column("line", lambda row: row[0]),
        Column("", "ms", lambda row: row[1][0], "eager"),
        Column("", "ms", lambda row: row[1][1], "compiled"),
        Column("", "ms", "", "change", _change),
    ),
    notes=lambda why, rows: unaccounted(why) if rows else (),
    outlets=TABLES,
)
KERNELS: View[Why, Kernel] = View(
    name="kernels",
    rows=lambda why: why.kernels,
    columns=lambda _: (
        Column("name", "text", lambda row: row[0], "kernel", lambda row: shorten(row[0], NAME_WIDTH)),
        Column("ms", "ms", lambda row: row[1], "ms"),
        Column("signs", "text", lambda row: row[2], "signs", lambda row: row[2]),
        Column(
            "lines", "text", lambda row: row[3], "the model's lines", lambda row: shorten(row[3], NAME_WIDTH)
        ),
    ),
    parts=lambda why: [("Generated kernels that take longest", why.kernels[:SHOWN_KERNELS])],
)
STAGES: View[Why, Ratio] = View(
    name="stages",
    title="Stages, for orientation",
    rows=lambda why: why.stages,
    columns=lambda _: (
        Column("stage", "text", "record.candidate", "stage"),
        Column("over", "text", lambda stage: stage.other.candidate if stage.other else "eager", "over"),
        _ratio("speedup", "speedup [95 %]", lambda stage: stage.estimate),
        Column("forward_ms", "ms", "record.metrics.candidate_forward_ms", "forward ms"),
        Column("backward_ms", "ms", "record.metrics.candidate_backward_ms", "backward ms"),
    ),
)
CALL: View[Why, tuple[str, Ends]] = View(
    name="call_parts",
    rows=lambda why: [*why.call.items()] if call_lines(why) else [],
    columns=_of_call,
    outlets=TABLES,
)
TRIED: View[Why, Tried] = View(
    name="tried",
    title="What to try",
    rows=lambda why: sorted(why.attempts, key=lambda tried: -tried.gain),  # the largest effect first
    columns=lambda _: (
        Column("setting", "text", "setting", "setting"),
        _ratio("over_plain", "over plain", lambda tried: tried.over_plain and tried.over_plain.estimate),
        _ratio("over_eager", "over eager", lambda tried: tried.comparison.estimate),
        Column("status", "text", "comparison.status", "parity"),
        Column("compile_s", "s", "comparison.compile_s", "compile s"),
        Column("helps", "truth", "helps", "helps"),
    ),
)
CAUSES: View[Sequence[Tested], Tested] = View(
    name="causes",
    rows=lambda causes: causes,
    columns=lambda _: (
        *values("text", "cause", "sentence", "evidence", of="proposal."),
        *(*values("text", "state"), *values("text", "setting", of="attempt."), *values(LISTED, "share")),
    ),
)
VIEWS: tuple[View[Why, Any] | Lists[Why], ...] = (
    _lines("verdict", "", lambda why: (verdict_text(why),)),
    _lines("causes", "Cause", cause_lines),
    BALANCE,
    KERNELS,
    STAGES,
    _lines("call", "The cost of a call", call_lines),
    CALL,
    TRIED,
    _lines("excluded", "What it is not", _checks),
)

# -- outlets -------------------------------------------------------------------------


def parts(why: Why) -> Iterator[Table | Finding]:
    """The tables and lists of the screen; the first has the name of the job."""
    for view in VIEWS:
        if isinstance(view, View):
            yield from view.tables(why)
        else:
            yield from (replace(own, title=view.title or why.title) for own in view.lists(why))


def show(why: Why, console: Console) -> None:
    writer = Writer(console, "why.md")
    for part in parts(why):
        if isinstance(part, Table):
            writer.table(part)
        else:
            writer.lists([part], len(part.cases))


def markdown(whys: Sequence[Why]) -> str:
    """why.md: all models in one table, by cause; then the views of each."""
    blocks = [table_block(overview(whys))] if len(whys) > 1 else []
    for why in whys:
        blocks += [text(f"# {escape(why.title)}"), *(b for view in VIEWS for b in view_blocks(view, why))]
    return fitted(blocks, ENDLESS)


def as_json(whys: Sequence[Why]) -> dict[str, Any]:
    """why.json: for programs. Ratios are not rounded."""
    return {"version": VERSION, "explanations": [_explanation(why) for why in whys]}


def _explanation(why: Why) -> dict[str, Any]:
    return {
        "job": why.plain.record.job.key,
        "candidate": why.plain.record.candidate,
        "verdict": why.plain.verdict.value if why.plain.verdict else None,
        "speedup": _ends(why.plain.estimate),
        "baseline_ms": why.plain.baseline_ms,
        "causes": CAUSES.data(why.causes),
        "together": next(iter(CAUSES.data([why.together] if why.together else [])), None),
        "guards": why.plain.number("guards"),
        "guard_check_us": why.plain.number("guard_check_us"),
        "call_us": why.call,
        "excluded": why.excluded,
        "not_excluded": why.shown,
        "balance_ms": {line: {"eager": e, "compiled": c} for line, (e, c) in why.balance.items()},
        **{view.name: view.data(why) for view in (KERNELS, STAGES, TRIED)},
    }
