"""What a comparison says, in lines, tables and lists of cases. Console and Markdown show the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from runner.analysis.digits import (
    MISSING,
    estimate_text,
    ms_text,
    p_text,
    ratio_text,
    seconds_text,
    share_text,
)
from runner.analysis.estimate import Estimate, Verdict
from runner.analysis.results import Comparison
from runner.analysis.verdicts.parity import percent
from runner.labels import counted, plain
from runner.reports.parts.grid import Table, optional
from runner.runs.compare.changes import (
    COMPILE_FACTOR,
    MEMORY_FACTOR,
    Change,
    Ending,
    GroupChange,
    RunChanges,
    alike_caches,
)
from runner.runs.compare.gates import breaks, differences_text, ending
from runner.runs.compare.run import Result, Run, differences

Row = TypeVar("Row")

SIDES = ("A", "B")
WORDS = {
    Verdict.SLOWER: "regressed",
    Verdict.FASTER: "improved",
    Verdict.SAME: "same",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.UNSTEADY: "unsteady",
}

BAD = ("New failures", "Other graph breaks")
"""Lists at which the user must look."""
MEASURED = "in the intervals of both runs, which had several processes"
ASSUMED = "assumed as in the runs' own reports; several processes (--processes) measure it"


# -- the head -----------------------------------------------------------------------------


def head_lines(changes: RunChanges) -> Iterator[str]:
    """The two sides, their differences, the drift and the noise."""
    first, second, timed = changes.first.facts, changes.second.facts, changes.timed
    for letter, run in zip(SIDES, (changes.first, changes.second), strict=True):
        facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
        yield plain(f"{letter}: {run.path}{f': {facts}' if facts else ''}")
    if other := differences(first, second):
        yield f"Differs: {differences_text(other)}"
    for (name, here, there), count in changes.incomparable:
        yield plain(
            f"Times of {counted(count, 'result')} are not compared: {name} is {here} in A and {there} in B. "
            "Statuses and graph breaks are compared."
        )
    pairs = [(change.first, change.second) for change in changes.changes]
    unlike = Counter((a.caches, b.caches) for a, b in pairs if not alike_caches((a, b)))
    for (here, there), count in unlike.items():
        yield (
            f"Compilation times of {counted(count, 'result')} are not compared: compile caches are {here} "
            f"in A and {there} in B."
        )
    for letter, count in zip(SIDES, changes.crowded, strict=True):
        if count:
            yield f"Other work used the CPUs in {letter}: {count} of {counted(len(timed), 'result')}."
    if changes.drift is not None:
        eager = changes.drift
        what = "In the same rounds" if changes.paired else "Drift"
        models = counted(eager.n, "shared model")
        yield f"{what}: eager in B takes {estimate_text(eager)} of its time in A ({models})."
    if timed:
        sides = [side.speedup for c in timed for side in (c.first, c.second) if side.speedup]
        assumed = sorted({side.assumed_sd for side in sides if side.assumed_sd})
        percents = " to ".join(dict.fromkeys(map(percent, (assumed[0], assumed[-1])))) if assumed else ""
        text = f"{percents} of a speedup, {ASSUMED}" if assumed else MEASURED
        yield f"Noise of a process: {text}."
    controls = [change.speedup for change in changes.controls if change.speedup]
    if controls:
        held = sum(control.within(1) for control in controls)
        yield f"A/A control: in {held} of {len(controls)} the interval of the change contains 1."


# -- the tables ---------------------------------------------------------------------------


def tables(changes: RunChanges) -> Iterator[tuple[Table, str]]:
    """Each table with a note, which may be empty."""
    if changes.groups:
        places = {group.where for group in changes.groups}
        columns = {name: cell for name, cell in GROUPS.items() if name != "where" or len(places) > 1}
        title = "" if len(places) > 1 else plain(places.pop())  # a single place is said once, above
        yield _table(title, changes.groups, columns), ""
    if changes.timed:
        timed = sorted(changes.timed, key=lambda change: change.speedup.log if change.speedup else 0.0)
        yield _table(_verdicts(changes), timed, _columns(changes)), _note(changes)


def _arrow(values: Sequence[float | None], text: Callable[[float], str] = ratio_text) -> str:
    """``1.20x -> 1.50x``"""
    texts = [text(value) if value else MISSING for value in values]
    return MISSING if set(texts) == {MISSING} else " -> ".join(texts)


def _both(
    read: Callable[[Comparison], float | None], text: Callable[[float], str]
) -> Callable[[Change], str]:
    return lambda change: _arrow([read(side.comparison) for side in (change.first, change.second)], text)


GROUPS: dict[str, Callable[[GroupChange], str]] = {
    "compiler": lambda group: plain(group.compiler),
    "where": lambda group: plain(group.where),
    "passed\nA -> B of shared": lambda g: f"{g.passed_first} -> {g.passed_second} of {g.shared}",
    "geomean\nA -> B": lambda group: _arrow((group.geomean_first, group.geomean_second)),
    "its change\n[95 % over models], models": lambda group: (
        f"{estimate_text(group.speedup)}, {group.timed}" if group.speedup else MISSING
    ),
    "compile time\nB / A": lambda group: estimate_text(group.compile),
    "memory ratio\nB / A": lambda group: estimate_text(group.memory),
}


SIDE_BY_SIDE: dict[str, Callable[[Change], str]] = {
    "eager A\nms": lambda c: optional(c.first.comparison.baseline_ms, ms_text),
    "eager B, ms\n(x of A's time)": lambda c: _ms(c.second.comparison.baseline_ms, c.factors.eager),
    "compiled B, ms\n(speedup)": lambda c: _ms(c.second.comparison.candidate_ms, c.second.speedup),
}
"""Of two environments of one run: the three times of a pull request."""


def _ms(time: float | None, factor: Estimate | None) -> str:
    return f"{optional(time, ms_text)} ({estimate_text(factor)})"


def _columns(changes: RunChanges) -> dict[str, Callable[[Change], str]]:
    return {
        "model": _name(changes),
        "compiler": lambda change: plain(change.first.compiler),
        **(SIDE_BY_SIDE if changes.paired else {}),
        "change of speedup\n[95 % interval]": lambda change: estimate_text(change.speedup),
        "verdict": lambda change: WORDS[change.verdict] if change.verdict else MISSING,
        "open\nbecause": lambda change: change.open_because.value if change.open_because else MISSING,
        "speedup\nA -> B": _both(lambda side: side.speedup, ratio_text),
        "q": lambda change: MISSING if change.q_value is None else p_text(change.q_value),
        "compiled, ms\nA -> B": _both(lambda side: side.candidate_ms, ms_text),
        **({} if changes.paired else {"eager, ms\nA -> B": _both(lambda side: side.baseline_ms, ms_text)}),
        "in the same rounds,\ntime x": lambda change: estimate_text(change.factors.compiled),
        "compile, s\nA -> B": _both(lambda side: side.compile_s, seconds_text),
        "memory ratio\nA -> B": _both(lambda side: side.memory_ratio, ratio_text),
    }


def _table(title: str, rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]) -> Table:
    cells = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return Table(title=title, header=tuple(columns), rows=cells).filled()


def _name(changes: RunChanges) -> Callable[[Change], str]:
    """The model, with those conditions in which others of its name differ."""
    known = {(c.first.name, *condition) for c in changes.changes for condition in c.first.conditions.items()}
    values = Counter((model, condition) for model, condition, _ in known)

    def name(change: Change) -> str:
        model, conditions = change.first.name, change.first.conditions.items()
        different = [v for n, v in conditions if v and n != "compiler" and values[model, n] > 1]
        return plain(f"{model} ({', '.join(different)})" if different else model)

    return name


def _verdicts(changes: RunChanges) -> str:
    """``3 regressed, 1 improved, 0 same, 5 inconclusive; 9 timed in both of 10 results shared``"""
    counts = Counter(change.verdict for change in changes.changes)
    words = [f"{counts[v]} {word}" for v, word in WORDS.items() if counts[v] or v is not Verdict.UNSTEADY]
    shared = counted(len(changes.changes), "result")
    return f"{', '.join(words)}; {len(changes.timed)} timed in both of {shared} shared"


def _note(changes: RunChanges) -> str:
    rounds = "The rounds of two runs are not paired, so the interval includes the noise within each run"
    if changes.paired:
        rounds = "The rounds pair the two sides; the interval includes the noise within the rounds"
    return (
        f"A speedup counts as changed if q < {changes.limits.alpha:g} and the change is beyond "
        f"{share_text(changes.limits.threshold)}; above 1 is better. {rounds} and the noise between "
        "processes."
    )


# -- the lists ----------------------------------------------------------------------------


def lists(changes: RunChanges) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Everything except the times, worst first: title and cases of each list that is not empty."""
    seconds = _both(lambda side: side.compile_s, lambda value: f"{seconds_text(value)} s")
    compiled = _changed(changes, lambda c: c.compile_factor, COMPILE_FACTOR, seconds)
    ratios = _both(lambda side: side.memory_ratio, ratio_text)
    memory = _changed(changes, lambda c: c.memory_factor, MEMORY_FACTOR, ratios)
    sides = [side.comparison for change in changes.changes for side in (change.first, change.second)]
    once = " (timed once: no interval)" if all(len(side.compilations_s) < 2 for side in sides) else ""
    latency = f"Compilation latency changed by more than {COMPILE_FACTOR - 1:.0%}{once}"
    unlike = [f"{first.title}: {differences_text(names)}" for first, _, names in changes.mismatches]
    cases_of: dict[str, Iterable[str]] = {
        "New failures": map(ending, changes.ended(Ending.NEW_FAILURE)),
        "Fixed failures": map(ending, changes.ended(Ending.FIXED)),
        "Other endings": map(ending, changes.ended(Ending.OTHER)),
        "Other graph breaks": breaks(changes),
        "Eager itself changed (the compiler may not be the cause)": _eager(changes),
        latency: reversed(compiled),
        f"Memory ratio changed by more than {MEMORY_FACTOR - 1:.0%}": memory,
        "Not compared: measured under different conditions": unlike,
        "Only in A": _only(changes.only_first, changes.first),
        "Only in B": _only(changes.only_second, changes.second),
        "Notes": dict.fromkeys((*changes.first.notes, *changes.second.notes)),
    }
    for title, cases in cases_of.items():
        if listed := tuple(cases):
            yield title, listed


def _eager(changes: RunChanges) -> Iterable[str]:
    """Each model once, with its interval, without a correction for multiple comparisons."""
    times = {c.first.title.rpartition(", ")[0]: c.factors.eager for c in reversed(changes.changes)}
    for title, time in reversed(times.items()):
        if time and not time.within(1) and abs(time.log) > changes.limits.log:
            yield f"{title}: {estimate_text(time)} of its time"


def _changed(
    changes: RunChanges,
    read: Callable[[Change], float | None],
    limit: float,
    both: Callable[[Change], str],
) -> list[str]:
    """The changes by more than a factor of ``limit``, the smallest factor first."""
    known = [(value, change) for change in changes.changes if (value := read(change)) is not None]
    beyond = [pair for pair in known if abs(math.log(pair[0])) > math.log(limit)]
    beyond.sort(key=lambda pair: pair[0])
    return [f"{change.first.title}: {both(change)} ({ratio_text(value)})" for value, change in beyond]


def _only(results: Sequence[Result], run: Run) -> tuple[str, ...]:
    """The results; one line for all results of a compiler that the other run lacks."""
    every = Counter(result.compiler for result in run.results)
    here = Counter(result.compiler for result in results)
    whole = {compiler for compiler, count in here.items() if 1 < count == every[compiler]}
    lines = [plain(f"{compiler}: all {here[compiler]} results") for compiler in here if compiler in whole]
    return (*lines, *(result.title for result in results if result.compiler not in whole))
