"""What a comparison says, in the order of ``VIEWS``: lines, tables and lists.

For a terminal, as Markdown for a comment on a pull request, and as JSON for programs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from runner.analysis.columns import KEY, Column, columns, text_column, values
from runner.analysis.digits import MISSING, estimate_text, ms_text, ratio_text, seconds_text, share_text
from runner.analysis.results import EAGER_STEP, SPEEDUP, STEP, Estimate, Finding, Result
from runner.analysis.texts import percent
from runner.analysis.verdicts import Verdict
from runner.names import counted, plain
from runner.reports.console import NOTE, Writer
from runner.reports.markdown import LIMIT, MarkdownBlock, escape, fitted, list_block, text, view_blocks
from runner.reports.parts.grid import optional, say
from runner.reports.parts.view import CONSOLE, JSON, Lists, Part, View
from runner.reports.summary_json import written
from runner.runs.compare.changes import ENDINGS, QUANTITIES, Change, Group, RunChanges, alike_caches
from runner.runs.compare.gates import GateResult, ending
from runner.runs.compare.run import Difference, Member, Run, differences

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_CASES = 20  # of one list on a terminal; the Markdown has more
OPEN = "open, because the interval reaches across the limit (more rounds, --processes or runs narrow it)"
REFUTED = "not confirmed: measured again, these are within the limit"
SCHEMA_VERSION = 3
LEAST_COLUMNS = 4  # from the left, however narrow the console is
OPEN_ROWS = 30  # in Markdown, a table with more rows is folded
COMPILE_FACTOR = 1.25  # smaller changes of a latency, which is measured only once, are ignored
MEMORY_FACTOR = 1.05
WORDS = {Verdict.SLOWER: "regressed", Verdict.FASTER: "improved", **{v: v.value for v in [*Verdict][2:]}}
BAD = ("New failures", "Other graph breaks")  # lists at which the user must look
MEASURED = "in the intervals of both runs, which had several processes"
ASSUMED = "assumed as in the runs' own reports; several processes (--processes) measure it"
FACTOR = ("factor", "low", "high", "p_value", "low_90", "high_90")


def head(changes: RunChanges) -> Iterator[str]:
    """The two sides, their differences, the drift and the noise."""
    sides = {"A": changes.first, "B": changes.second}
    for letter, run in sides.items():
        facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
        yield plain(f"{letter}: {run.title}{f': {facts}' if facts else ''}")
    if other := differences(changes.first.facts, changes.second.facts):
        yield f"Differs: {_named(other)}"
    for (name, here, there), count in changes.incomparable:
        what = f"Times of {counted(count, 'result')} are not compared: {name} is {here} in A and {there} in B"
        yield plain(f"{what}. Statuses and graph breaks are compared.")
    pairs = [(c.first, c.second) for c in changes.changes]
    for caches, count in Counter((a.caches, b.caches) for a, b in pairs if not alike_caches(a, b)).items():
        what = f"Compilation times of {counted(count, 'result')} are not compared"
        yield f"{what}: compile caches are {' in A and '.join(caches)} in B."
    for letter, count in zip(sides, changes.crowded, strict=True):
        if count:
            whole = counted(len(changes.timed), "result")
            yield f"Other work used the CPUs in {letter}: {count} of {whole}."
    if (eager := changes.drift) is not None:
        what, models = "In the same rounds" if changes.paired else "Drift", counted(eager.n, "shared model")
        yield f"{what}: eager in B takes {estimate_text(eager)} of its time in A ({models})."
    yield from _noise(changes)
    if controls := [change.speedup for change in changes.controls if change.speedup]:
        held = sum(control.within(1) for control in controls)
        yield f"A/A control: in {held} of {len(controls)} the interval of the change contains 1."


def _noise(changes: RunChanges) -> Iterator[str]:
    both = [
        (before, after) for c in changes.timed if (before := c.first.speedup) and (after := c.second.speedup)
    ]
    if over := [math.sqrt(len(a.runs)) * a.error for a, _ in both if a.runs and a.error is not None]:
        yield f"Noise between the runs of A: {_range(over)} of a speedup, measured."
    if sides := [side for pair in both if not pair[0].runs for side in pair]:
        assumed = [side.assumed_sd for side in sides if side.assumed_sd]
        yield f"Noise of a process: {f'{_range(assumed)} of a speedup, {ASSUMED}' if assumed else MEASURED}."


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(map(percent, (min(values), max(values)))))


def _named(differences: Sequence[Difference]) -> str:
    """``batch size 8 -> 4, scale full -> small``"""
    return plain(", ".join(f"{name} {first} -> {second}" for name, first, second in differences))


def _arrow(values: Sequence[float | None], text: Callable[[float], str] = ratio_text) -> str:
    """``1.20x -> 1.50x``"""
    texts = [text(value) if value else MISSING for value in values]
    return MISSING if set(texts) == {MISSING} else " -> ".join(texts)


def _both(read: str, text: Callable[[float], str]) -> Callable[[Change], str]:
    return lambda c: _arrow([getattr(side.comparison, read) for side in (c.first, c.second)], text)


def _factor(name: str, source: str) -> Iterator[Column[Any]]:
    """An estimate as data."""
    return (Column(f"{name}_{part}", "ratio", f"{source}.{part}") for part in FACTOR)


def _of_groups(changes: RunChanges) -> Iterator[Column[Group]]:
    several = len({group.where for group in changes.groups}) > 1  # a single place is the title
    yield Column("compiler", "text", lambda group: plain(group.compiler), header="compiler")
    yield Column("where", "text", lambda group: plain(group.where), header="where" if several else "")
    yield text_column(
        "passed\nA -> B of shared", lambda g: f"{g.passed[0]} -> {g.passed[1]} of {len(g.changes)}"
    )
    yield text_column("geomean\nA -> B", lambda group: _arrow(group.geomeans))
    yield text_column("its change\n[95 % over models]", lambda group: estimate_text(group.means["speedup"]))
    yield Column("timed", "", lambda group: len(group.timed), header="models")
    yield text_column("compile time\nB / A", lambda group: estimate_text(group.means["compile"]))
    yield text_column("memory ratio\nB / A", lambda group: estimate_text(group.means["memory"]))
    yield Column("shared", "", lambda group: len(group.changes))
    yield Column("passed_a", "", lambda group: group.passed[0])
    yield Column("passed_b", "", lambda group: group.passed[1])
    yield Column("geomean_a", "ratio", lambda group: group.geomeans[0])
    yield Column("geomean_b", "ratio", lambda group: group.geomeans[1])
    for name in ("speedup", "compile", "memory"):
        yield from _factor(name, f"means.{name}")


SIDE_BY_SIDE: tuple[Column[Change], ...] = (
    text_column("eager A\nms", lambda c: optional(c.first.comparison.baseline_ms, ms_text)),
    text_column("eager B, ms\n(x of A's time)", lambda c: _ms(c, "baseline_ms", c.of(EAGER_STEP))),
    text_column("compiled B, ms\n(speedup)", lambda c: _ms(c, "candidate_ms", c.second.speedup)),
)
"""Of two environments of one run: the three times of a pull request."""


def _ms(change: Change, name: str, factor: Estimate | None) -> str:
    return f"{optional(getattr(change.second.comparison, name), ms_text)} ({estimate_text(factor)})"


def _verdict(change: Change) -> str | None:
    word = SPEEDUP in change.ratios and change.ratios[SPEEDUP].verdict
    return WORDS[word] if word else None


def _of_changes(changes: RunChanges) -> Iterator[Column[Change]]:
    texts = (
        text_column("model", _name(changes)),
        text_column("compiler", lambda change: plain(change.first.compiler)),
        *(SIDE_BY_SIDE if changes.paired else ()),
        text_column("change of speedup\n[95 % interval]", lambda change: estimate_text(change.speedup)),
        Column("verdict", "text", _verdict, header="verdict"),
        Column("open_because", "text", "ratios.speedup.open.reason", header="open\nbecause"),
        text_column("speedup\nA -> B", _both("speedup", ratio_text)),
        Column("q_value", "p", "ratios.speedup.q_value", header="q"),
        text_column("compiled, ms\nA -> B", _both("candidate_ms", ms_text)),
        *(() if changes.paired else (text_column("eager, ms\nA -> B", _both("baseline_ms", ms_text)),)),
        text_column("in the same rounds,\ntime x", lambda change: estimate_text(change.of(STEP))),
        text_column("compile, s\nA -> B", _both("compile_s", seconds_text)),
        text_column("memory ratio\nA -> B", _both("memory_ratio", ratio_text)),
    )
    for place, column in enumerate(texts):  # a narrow console omits them from the right
        yield replace(column, drop=max(0, place - LEAST_COLUMNS + 1))
    yield Column("name", "text", "first.name")
    for condition in changes.every[0].first.conditions:
        yield Column(condition.replace(" ", "_"), "text", f"first.conditions.{condition}")
    for side, letter in (("first", "a"), ("second", "b")):
        for of_result in (column for column in columns().values() if column.group != KEY):
            yield Column(f"{of_result.name}_{letter}", of_result.unit, partial(_value, of_result, side))
        yield Column(f"status_{letter}", "text", f"{side}.status")  # with those that have no record
    for quantity in QUANTITIES:
        yield from _factor(quantity, f"ratios.{quantity}.estimate")
    yield Column("closes_with", "text", "ratios.speedup.open.closes")
    yield from values("ratio", "compile_factor", "memory_factor")
    yield from (*values("text", "ending"), *values("", "rounds"))


def _value(column: Column[Result], side: str, change: Change) -> Any:
    return column.value(getattr(change, side).comparison)


def _name(changes: RunChanges) -> Callable[[Change], str]:
    """The model, with those conditions in which others of its name differ."""
    known = {(c.first.name, *condition) for c in changes.changes for condition in c.first.conditions.items()}
    values = Counter((model, condition) for model, condition, _ in known)

    def name(change: Change) -> str:
        model, conditions = change.first.name, change.first.conditions.items()
        different = [v for n, v in conditions if v and n != "compiler" and values[model, n] > 1]
        return plain(f"{model} ({', '.join(different)})" if different else model)

    return name


def _groups(changes: RunChanges) -> Iterator[Part[Group]]:
    first, *others = {group.where for group in changes.groups} or {""}
    yield "" if others else plain(first), changes.groups


def _timed(changes: RunChanges) -> Iterator[Part[Change]]:
    """``3 regressed, 1 improved, 0 same, 5 inconclusive; 9 timed in both of 10 results shared``"""
    counts = Counter(change.ratios[SPEEDUP].verdict for change in changes.timed)
    words = [f"{counts[v]} {word}" for v, word in WORDS.items() if counts[v] or v is not Verdict.UNSTEADY]
    shared = counted(len(changes.changes), "result")
    title = f"{', '.join(words)}; {len(changes.timed)} timed in both of {shared} shared"
    yield title, sorted(changes.timed, key=lambda change: change.speedup.log if change.speedup else 0.0)


def _note(changes: RunChanges, _: Sequence[Change]) -> Iterator[str]:
    includes = "The rounds of two runs are not paired, so the interval includes the noise within each run"
    if changes.paired:
        includes = "The rounds pair the two sides; the interval includes the noise within the rounds"
    if any(c.first.speedup and c.first.speedup.runs for c in changes.timed):
        includes = (
            "B is one more run like those of A: the interval includes the noise between runs, within runs"
        )
    counts = f"q < {changes.limits.alpha:g} and the change is beyond {share_text(changes.limits.threshold)}"
    yield f"A speedup counts as changed if {counts}; above 1 is better. {includes} and between processes."


def lists(changes: RunChanges) -> Iterator[Finding]:
    """Everything except the times, worst first, without empty lists."""
    seconds = _both("compile_s", lambda value: f"{seconds_text(value)} s")
    sides = [side.comparison for c in changes.changes for side in (c.first, c.second)]
    once = " (timed once: no interval)" if all(len(side.compilations_s) < 2 for side in sides) else ""
    latency = f"Compilation latency changed by more than {COMPILE_FACTOR - 1:.0%}{once}"
    memory = f"Memory ratio changed by more than {MEMORY_FACTOR - 1:.0%}"
    ratios = _both("memory_ratio", ratio_text)
    cases_of: dict[str, Iterable[str]] = {
        **{
            title: [f"{c.first.title}: {ending(c)}" for c in changes.every if c.ending == how]
            for title, how in ENDINGS.items()
        },
        "Other graph breaks": breaks(changes),
        "Eager itself changed (the compiler may not be the cause)": _eager(changes),
        latency: reversed(_changed(changes, "compile_factor", COMPILE_FACTOR, seconds)),
        memory: _changed(changes, "memory_factor", MEMORY_FACTOR, ratios),
        "Not compared: measured under different conditions": [
            f"{first.title}: {_named(differences(first.conditions, other.conditions))}"
            for first, other in changes.matched.mismatches
        ],
        "Only in A": _only(changes.matched.only_first, changes.first),
        "Only in B": _only(changes.matched.only_second, changes.second),
        "Notes": dict.fromkeys((*changes.first.notes, *changes.second.notes, *_in_some(changes))),
    }
    for title, cases in cases_of.items():
        if listed := tuple(cases):
            yield Finding(title=title, cases=listed)


def breaks(changes: RunChanges) -> list[str]:
    known = [(c.first.title, *counts) for c, *counts in changes.counts("graph_breaks")]
    return [f"{name}: {before} -> {after} graph breaks" for name, before, after in known if before != after]


def _eager(changes: RunChanges) -> Iterable[str]:
    """Each model once, with its interval, without a correction for multiple comparisons."""
    times = {c.first.title.rpartition(", ")[0]: c.of(EAGER_STEP) for c in reversed(changes.changes)}
    for title, time in reversed(times.items()):
        if time and not time.within(1) and abs(time.log) > changes.limits.log:
            yield f"{title}: {estimate_text(time)} of its time"


def _changed(changes: RunChanges, name: str, limit: float, both: Callable[[Change], str]) -> list[str]:
    """The changes by more than a factor of ``limit``, the smallest factor first."""
    known = [(value, change) for change in changes.changes if (value := getattr(change, name)) is not None]
    beyond = [pair for pair in known if abs(math.log(pair[0])) > math.log(limit)]
    beyond.sort(key=lambda pair: pair[0])
    return [f"{change.first.title}: {both(change)} ({ratio_text(value)})" for value, change in beyond]


def _only(results: Sequence[Member], run: Run) -> tuple[str, ...]:
    """The results; one line for all results of a compiler that the other run lacks."""
    every = Counter(result.compiler for result in run.results)
    here = Counter(result.compiler for result in results)
    whole = {compiler for compiler, count in here.items() if 1 < count == every[compiler]}
    lines = [plain(f"{compiler}: all {here[compiler]} results") for compiler in here if compiler in whole]
    return (*lines, *(result.title for result in results if result.compiler not in whole))


def _in_some(changes: RunChanges) -> Iterator[str]:
    """Results that some runs of the base lack, or have on another machine, or that passed in some."""
    count = len(changes.first.parts)
    for first in (change.first for change in changes.every if count):
        own, passed = len(first.runs), sum(run.passed for run in first.runs)
        if own < count or 0 < passed < count:
            yield f"{first.title}: {own} of {count} runs of A can be compared, and {passed} passed"


VIEWS: tuple[View[RunChanges, Any] | Lists[RunChanges], ...] = (
    Lists(
        name="head",
        title="",
        lists=lambda changes: [Finding(title="", cases=tuple(head(changes)))],
        data=lambda changes: [*head(changes)],
    ),
    View(
        name="drift",
        rows=lambda changes: [changes.drift] if changes.drift else [],
        columns=lambda _: [*values("ratio", *FACTOR), Column("models", "", "n")],
        outlets=(JSON,),
    ),
    View(name="groups", rows=lambda changes: changes.groups, columns=_of_groups, parts=_groups),
    View(
        name="changes",
        rows=lambda changes: changes.every,
        columns=_of_changes,
        parts=_timed,
        notes=_note,
        folded=OPEN_ROWS,
    ),
    Lists(
        name="lists", title="", lists=lists, data=lambda changes: {f.title: f.cases for f in lists(changes)}
    ),
)


def print_changes(changes: RunChanges, results: Sequence[GateResult], console: Console) -> None:
    """Prints everything; names are text, never markup. Columns without room are omitted and named."""
    writer = Writer(console, "--format=md")
    first, second, *others = head(changes)
    say(console, f"{first}\n{second}")  # the paths may be copied
    for line in others:
        writer.paragraph(line)
    for view in VIEWS:
        for table in view.tables(changes) if isinstance(view, View) and CONSOLE in view.outlets else ():
            writer.table(table)
    for listed in lists(changes):
        console.print()
        title, bad = f"{listed.title}: {len(listed.cases)}", listed.title in BAD
        _print_cases(console, title, listed.cases, bad=bad)
    for result in results:
        console.print()
        print_result(result, console)


def print_result(result: GateResult, console: Console) -> None:
    count = len(result.cases)
    word = "FAILED" if count else "open" if result.open else "passed"
    words = f"--fail-on {result.gate.words}: {word} ({result.title}: {count})"
    _print_cases(console, words, result.cases, bad=bool(count))
    if result.advice:
        say(console, f"    -> {result.advice}")
    if result.confirmed:
        say(console, f"    {result.confirmed}")
    if result.refuted:
        refuted = [row.line for row in result.refuted]
        _print_cases(console, f"    {REFUTED}: {len(refuted)}", refuted, bad=False)
    if result.open:
        _print_cases(console, f"    {OPEN}: {len(result.open)}", result.open, bad=False)


def _print_cases(console: Console, title: str, cases: Sequence[str], *, bad: bool) -> None:
    say(console, title, "bold red" if bad else "bold")
    for case in cases[:SHOWN_CASES]:
        say(console, f"    {case}")
    if len(cases) > SHOWN_CASES:
        say(console, f"    and {len(cases) - SHOWN_CASES} more; --format=md has more of them", NOTE)


def render_markdown(changes: RunChanges, results: Sequence[GateResult]) -> str:
    """The comparison in less than 65,536 bytes. Names are escaped, so that none can become markup."""
    blocks = [text("## What changed between two runs"), *(b for r in results for b in _of_gate(r))]
    blocks += [block for view in VIEWS for block in view_blocks(view, changes)]
    return fitted(blocks, LIMIT - 1, "--format=json has all of them")


def _of_gate(result: GateResult) -> Iterator[MarkdownBlock]:
    failed = len(result.cases)
    mark = ":x:" if failed else ":grey_question:" if result.open else ":white_check_mark:"
    yield text(f"{mark} **{escape(f'{result.gate.words} ({result.title}: {failed})')}**")
    if result.cases:
        yield list_block(result.cases)
    if result.advice:
        yield text(escape(result.advice))
    if result.open:
        yield text(escape(f"{OPEN}: {len(result.open)}"))
        yield list_block(result.open)


def render_json(changes: RunChanges, results: Sequence[GateResult]) -> str:
    """Complete and without rounding. Infinity and NaN are texts, as in records."""
    gates = [
        {"gate": r.gate.words, "failed": bool(r.cases), "cases": r.cases, "open": r.open} for r in results
    ]
    runs = [{"path": str(run.path), "facts": run.facts} for run in changes.runs]
    content = {"schema_version": SCHEMA_VERSION, "runs": runs, "gates": gates}
    return written(content, VIEWS, changes)
