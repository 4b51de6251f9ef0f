"""What a comparison says, in lines, tables and lists of cases. Console and Markdown show the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runner.analysis.digits import (
    MISSING,
    ms_text,
    p_text,
    ratio_text,
    seconds_text,
    share_text,
    significant,
    speedup_text,
)
from runner.analysis.estimate import Verdict
from runner.labels import counted, plain
from runner.reports.parts.grid import Table
from runner.runs.compare.changes import (
    COMPILE_FACTOR,
    MEMORY_FACTOR,
    Change,
    Ending,
    GroupChange,
    RunChanges,
    alike_caches,
)
from runner.runs.compare.gates import broken, differences_text, ending, estimate_text
from runner.runs.compare.run import Result, Run
from runner.runs.compare.statistics import LEAST_CHANGES, LEAST_CONTROLS, ProcessNoise

Row = TypeVar("Row")

SIDES = ("A", "B")
WORDS = {
    Verdict.SLOWER: "regressed",
    Verdict.FASTER: "improved",
    Verdict.SAME: "same",
    Verdict.INCONCLUSIVE: "inconclusive",
}
CONTROLS = "{count} A/A controls of the two runs"
SPREAD = "the spread of the changes over {count} models, which includes real differences between models"
TOO_FEW = (
    f"for a measurement, the runs need {LEAST_CONTROLS} A/A controls (--compilers=...,eager), "
    f"{LEAST_CHANGES} models or several processes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A table with a note, or a list of cases. ``bad``: the user must look at these cases."""

    title: str
    table: Table | None = None
    note: str = ""
    cases: tuple[str, ...] = ()
    bad: bool = False


def everything(changes: RunChanges) -> Iterator[Shown]:
    """All parts after the head. Empty ones are omitted."""
    if changes.groups:
        places = {group.where for group in changes.groups}
        columns = {name: cell for name, cell in GROUPS.items() if name != "where" or len(places) > 1}
        title = "" if len(places) > 1 else plain(places.pop())  # a single place is said once, above
        yield Shown(title=title, table=_table(columns, changes.groups))
    if changes.timed:
        timed = sorted(changes.timed, key=lambda change: change.speedup.log if change.speedup else 0.0)
        yield Shown(title=_verdicts(changes), table=_table(_columns(changes), timed), note=_note(changes))
    yield from filter(lambda shown: shown.cases, _lists(changes))


# -- the head -----------------------------------------------------------------------------


def head_lines(changes: RunChanges) -> Iterator[str]:
    """The two sides, their differences, the drift and the noise."""
    for letter, run in zip(SIDES, (changes.first, changes.second), strict=True):
        facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
        yield plain(f"{letter}: {run.path}{f': {facts}' if facts else ''}")
    other = [
        f"{name} {value} -> {changes.second.facts[name]}"
        for name, value in changes.first.facts.items()
        if changes.second.facts.get(name, value) != value
    ]
    if other:
        yield plain(f"Differs: {', '.join(other)}")
    for (name, first, second), count in changes.incomparable:
        yield plain(
            f"Times of {counted(count, 'result')} are not compared: {name} is {first} in A and {second} in "
            "B. Statuses and graph breaks are compared."
        )
    pairs = [(change.first, change.second) for change in changes.changes]
    caches = Counter((one.caches, other.caches) for one, other in pairs if not alike_caches((one, other)))
    for (first, second), count in caches.items():
        yield (
            f"Compilation times of {counted(count, 'result')} are not compared: compile caches are {first} "
            f"in A and {second} in B."
        )
    for letter, count in zip(SIDES, changes.crowded, strict=True):
        if count:
            timed = counted(len(changes.timed), "result")
            yield f"Other work used the CPUs in {letter}: {count} of {timed}."
    yield from _drift_and_noise(changes)


def _drift_and_noise(changes: RunChanges) -> Iterator[str]:
    moved = changes.drift
    if moved is not None:
        models = counted(moved.models, "shared model")
        factor = speedup_text(moved.factor, moved.low, moved.high)
        spread = "" if moved.spread is None else f", spread over models {_percent(moved.spread)}"
        what = "In the same rounds" if changes.paired else "Drift"
        yield f"{what}: eager in B takes {factor} of its time in A ({models}{spread})."
    if changes.timed:
        yield f"Noise of a process: {_noise_text(changes.noise, changes)}."
    controls = [change.speedup for change in changes.controls if change.speedup]
    if controls:
        held = sum(control.within(1) for control in controls)
        yield f"A/A control: in {held} of {len(controls)} the interval of the change contains 1."


def _noise_text(noise: ProcessNoise | None, changes: RunChanges) -> str:
    """The variation between processes that the intervals contain, and where it comes from."""
    estimates = [r.speedup for change in changes.timed for r in (change.first, change.second) if r.speedup]
    assumed = sorted({one.assumed_sd for one in estimates if one.assumed_sd})
    if not assumed:
        return "in the intervals of both runs, which had several processes"
    percents = " to ".join(dict.fromkeys(map(_percent, (assumed[0], assumed[-1]))))
    text = f"{percents} of a speedup, assumed"
    if noise is None:
        return f"{text}; {TOO_FEW}"
    source = (CONTROLS if noise.source == "controls" else SPREAD).format(count=noise.count)
    if noise.sd > assumed[0]:
        return f"{_percent(noise.sd)} of a speedup, from {source}"
    return (
        f"{text}; {_percent(noise.sd)} from {source}"
        if noise.resolved
        else f"{text}; not resolved by {source}"
    )


def _percent(sd: float) -> str:
    return f"{significant(100 * sd, 2)} %"


# -- the tables ---------------------------------------------------------------------------


def _arrow(values: Sequence[float | None], text: Callable[[float], str] = ratio_text) -> str:
    """``1.20x -> 1.50x``"""
    texts = [text(value) if value else MISSING for value in values]
    return MISSING if set(texts) == {MISSING} else " -> ".join(texts)


def _both(read: Callable[[Result], float | None], text: Callable[[float], str]) -> Callable[[Change], str]:
    return lambda change: _arrow((read(change.first), read(change.second)), text)


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


def _columns(changes: RunChanges) -> dict[str, Callable[[Change], str]]:
    names = _names(changes)
    beyond = "in the same rounds,\ntime x" if changes.paired else "beyond the drift,\ntime x"
    return {
        "model": lambda change: names[id(change)],
        "compiler": lambda change: plain(change.first.compiler),
        "change of speedup\n[95 % interval]": lambda change: estimate_text(change.speedup),
        "verdict": lambda change: WORDS[change.verdict] if change.verdict else MISSING,
        "speedup\nA -> B": _both(lambda r: r.speedup.factor if r.speedup else None, ratio_text),
        "q": lambda change: MISSING if change.q_value is None else p_text(change.q_value),
        "compiled, ms\nA -> B": _both(lambda r: r.compiled_s, lambda s: ms_text(s * 1e3)),
        "eager, ms\nA -> B": _both(lambda r: r.eager_s, lambda s: ms_text(s * 1e3)),
        beyond: lambda change: estimate_text(change.compiled),
        "compile, s\nA -> B": _both(lambda r: r.compile_s, seconds_text),
        "memory ratio\nA -> B": _both(lambda r: r.memory_ratio, ratio_text),
    }


def _table(columns: dict[str, Callable[[Row], str]], rows: Sequence[Row]) -> Table:
    cells = tuple(tuple(cell(row) for cell in columns.values()) for row in rows)
    return Table(header=tuple(columns), rows=cells).filled()


def _names(changes: RunChanges) -> dict[int, str]:
    """The model, with those conditions in which others of its name differ."""
    values: dict[tuple[str, str], set[str]] = {}
    for change in changes.changes:
        for condition, value in change.first.conditions.items():
            values.setdefault((change.first.name, condition), set()).add(value)
    texts = {}
    for change in changes.changes:
        conditions = {n: value for n, value in change.first.conditions.items() if n != "compiler" and value}
        different = [value for n, value in conditions.items() if len(values[change.first.name, n]) > 1]
        inside = f" ({', '.join(different)})" if different else ""
        texts[id(change)] = plain(f"{change.first.name}{inside}")
    return texts


def _verdicts(changes: RunChanges) -> str:
    """``3 regressed, 1 improved, 0 same, 5 inconclusive; 9 timed in both of 10 results shared``"""
    counts = ", ".join(f"{len(changes.with_verdict(v))} {word}" for v, word in WORDS.items())
    return f"{counts}; {len(changes.timed)} timed in both of {counted(len(changes.changes), 'result')} shared"


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


def _lists(changes: RunChanges) -> Iterator[Shown]:
    """Everything except the times, worst first."""
    beyond = "" if changes.paired else " beyond the drift"
    yield Shown(title="New failures", cases=tuple(map(ending, changes.ended(Ending.NEW_FAILURE))), bad=True)
    yield Shown(title="Fixed failures", cases=tuple(map(ending, changes.ended(Ending.FIXED))))
    yield Shown(title="Other endings", cases=tuple(map(ending, changes.ended(Ending.OTHER))))
    yield Shown(title="Other graph breaks", cases=tuple(map(broken, changes.breaks)), bad=True)
    yield Shown(
        title=f"Eager itself changed{beyond} (the compiler may not be the cause)", cases=_eager(changes)
    )
    compiled = _changed(changes, lambda c: c.compile_factor, COMPILE_FACTOR)
    seconds = _both(lambda r: r.compile_s, lambda s: f"{seconds_text(s)} s")
    yield Shown(
        title=f"Compilation latency changed by more than {COMPILE_FACTOR - 1:.0%} (timed once: no interval)",
        cases=tuple(f"{c.first.title}: {seconds(c)} ({ratio_text(f)})" for f, c in reversed(compiled)),
    )
    memory = _changed(changes, lambda c: c.memory_factor, MEMORY_FACTOR)
    ratios = _both(lambda r: r.memory_ratio, ratio_text)
    yield Shown(
        title=f"Memory ratio changed by more than {MEMORY_FACTOR - 1:.0%}",
        cases=tuple(f"{c.first.title}: {ratios(c)} ({ratio_text(f)})" for f, c in memory),
    )
    yield Shown(
        title="Not compared: measured under different conditions",
        cases=tuple(
            f"{plain(m.first.title)}: {plain(differences_text(m.differences))}" for m in changes.mismatches
        ),
    )
    yield Shown(title="Only in A", cases=_only(changes.only_first, changes.first))
    yield Shown(title="Only in B", cases=_only(changes.only_second, changes.second))
    yield Shown(title="Notes", cases=tuple(dict.fromkeys((*changes.first.notes, *changes.second.notes))))


def _eager(changes: RunChanges) -> tuple[str, ...]:
    """Each model once, with its interval, without a correction for multiple comparisons."""
    sentences: dict[str, str] = {}
    for change in changes.changes:
        time = change.eager
        if time and not time.within(1) and abs(time.log) > changes.limits.log:
            title = change.first.title.rpartition(", ")[0]
            sentences.setdefault(title, f"{title}: {estimate_text(time)} of its time")
    return tuple(sentences.values())


def _changed(
    changes: RunChanges, factor: Callable[[Change], float | None], limit: float
) -> list[tuple[float, Change]]:
    """The changes by more than a factor of ``limit``, the smallest factor first."""
    known = [(value, change) for change in changes.changes if (value := factor(change)) is not None]
    beyond = [pair for pair in known if abs(math.log(pair[0])) > math.log(limit)]
    return sorted(beyond, key=lambda pair: pair[0])


def _only(results: Sequence[Result], run: Run) -> tuple[str, ...]:
    """The results; one line for all results of a compiler that the other run lacks."""
    every = Counter(result.compiler for result in run.results)
    here = Counter(result.compiler for result in results)
    whole = {compiler for compiler, count in here.items() if 1 < count == every[compiler]}
    lines = [plain(f"{compiler}: all {here[compiler]} results") for compiler in here if compiler in whole]
    return (*lines, *(result.title for result in results if result.compiler not in whole))
