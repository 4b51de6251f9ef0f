"""Texts that all outputs of a comparison share: lines, table cells, lists of cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from runner.analysis.estimate import Estimate, Verdict
from runner.labels import counted, plain
from runner.runs.compare.changes import (
    COMPILE_FACTOR,
    MEMORY_FACTOR,
    Change,
    GroupChange,
    RunChanges,
    alike_caches,
)
from runner.runs.compare.gates import broken, differences_text, ending
from runner.runs.compare.run import Result, Run
from runner.runs.compare.statistics import LEAST_CHANGES, LEAST_CONTROLS, ProcessNoise

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
GROUP_HEADER = (
    "compiler",
    "where",
    "passed\nA -> B of shared",
    "geomean\nA -> B",
    "its change\n[95 % over models], models",
    "compile time\nB / A",
    "memory ratio\nB / A",
)
BEYOND_DRIFT, IN_SHARED_ROUNDS = "beyond the drift,\ntime x", "in the same rounds,\ntime x"
CHANGE_HEADER = (
    "model",
    "compiler",
    "change of speedup\n[95 % interval]",
    "verdict",
    "speedup\nA -> B",
    "q",
    "compiled, ms\nA -> B",
    "eager, ms\nA -> B",
    BEYOND_DRIFT,
    "compile, s\nA -> B",
    "memory ratio\nA -> B",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseList:
    """A heading with its cases. ``bad``: the user must look at these cases."""

    title: str
    cases: tuple[str, ...]
    bad: bool = False


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
    caches = Counter(
        (c.first.caches, c.second.caches) for c in changes.changes if not alike_caches((c.first, c.second))
    )
    for (first, second), count in caches.items():
        yield (
            f"Compilation times of {counted(count, 'result')} are not compared: compile caches are {first} "
            f"in A and {second} in B."
        )
    timed = counted(len(changes.timed), "result")
    for letter, count in zip(SIDES, changes.crowded, strict=True):
        if count:
            yield f"Other work used the CPUs in {letter}: {count} of {timed}."
    yield from _drift_and_noise(changes)


def _drift_and_noise(changes: RunChanges) -> Iterator[str]:
    moved, noise = changes.drift, changes.noise
    if moved is not None:
        models = counted(moved.models, "shared model")
        factor = speedup_text(moved.factor, moved.low, moved.high)
        spread = (
            f", spread over models {significant(100 * moved.spread, 2)} %" if moved.spread is not None else ""
        )
        what = "In the same rounds" if changes.paired else "Drift"
        yield f"{what}: eager in B takes {factor} of its time in A ({models}{spread})."
    if changes.timed:
        yield f"Noise of a process: {_noise_text(noise, changes)}."
    if changes.controls and any(change.speedup for change in changes.controls):
        timed = [change.speedup for change in changes.controls if change.speedup]
        held = sum(change.within(1) for change in timed)
        yield f"A/A control: in {held} of {len(timed)} the interval of the change contains 1."


def _noise_text(noise: ProcessNoise | None, changes: RunChanges) -> str:
    """The variation between processes that the intervals contain, and where it comes from."""
    estimates = [r.speedup for change in changes.timed for r in (change.first, change.second) if r.speedup]
    assumed = sorted({one.assumed_sd for one in estimates if one.assumed_sd})
    if not assumed:
        return "in the intervals of both runs, which had several processes"
    percents = dict.fromkeys(f"{significant(100 * sd, 2)} %" for sd in (assumed[0], assumed[-1]))
    text = f"{' to '.join(percents)} of a speedup, assumed"
    if noise is None:
        return f"{text}; {TOO_FEW}"
    source = (CONTROLS if noise.source == "controls" else SPREAD).format(count=noise.count)
    shown = f"{significant(100 * noise.sd, 2)} %"
    if noise.sd > assumed[0]:
        return f"{shown} of a speedup, from {source}"
    return f"{text}; not resolved by {source}" if not noise.resolved else f"{text}; {shown} from {source}"


def group_rows(changes: RunChanges) -> list[tuple[str, ...]]:
    return [_group_row(group) for group in changes.groups]


def _group_row(group: GroupChange) -> tuple[str, ...]:
    means = (group.geomean_first, group.geomean_second)
    change = f"{estimate_text(group.speedup)}, {group.timed}" if group.speedup else MISSING
    return (
        plain(group.compiler),
        plain(group.where),
        f"{group.passed_first} -> {group.passed_second} of {group.shared}",
        _arrow([ratio_text(mean) if mean is not None else MISSING for mean in means]),
        change,
        estimate_text(group.compile),
        estimate_text(group.memory),
    )


def change_header(changes: RunChanges) -> tuple[str, ...]:
    return tuple(
        IN_SHARED_ROUNDS if changes.paired and name == BEYOND_DRIFT else name for name in CHANGE_HEADER
    )


def change_rows(changes: RunChanges) -> list[tuple[str, ...]]:
    """All results timed in both runs, from the largest loss to the largest gain."""
    labels = _names(changes)
    timed = [change for change in changes.changes if change.speedup is not None]
    timed.sort(key=lambda change: change.speedup.factor if change.speedup else math.inf)
    return [_change_row(change, labels[id(change)]) for change in timed]


def _change_row(change: Change, name: str) -> tuple[str, ...]:
    one, other = change.first, change.second
    speedups = [ratio_text(r.speedup.factor) if r.speedup else MISSING for r in (one, other)]
    return (
        name,
        plain(one.compiler),
        estimate_text(change.speedup),
        WORDS[change.verdict] if change.verdict else MISSING,
        " -> ".join(speedups),
        p_text(change.q_value) if change.q_value is not None else MISSING,
        _arrow([ms_text(r.compiled_s * 1e3) if r.compiled_s else MISSING for r in (one, other)]),
        _arrow([ms_text(r.eager_s * 1e3) if r.eager_s else MISSING for r in (one, other)]),
        estimate_text(change.compiled),
        _arrow([seconds_text(r.compile_s) if r.compile_s else MISSING for r in (one, other)]),
        _arrow([ratio_text(r.memory_ratio) if r.memory_ratio else MISSING for r in (one, other)]),
    )


def _arrow(texts: Sequence[str]) -> str:
    return MISSING if set(texts) == {MISSING} else " -> ".join(texts)


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


def case_lists(changes: RunChanges) -> tuple[CaseList, ...]:
    """Everything except the times, worst first. Empty lists are omitted."""
    beyond = "" if changes.paired else " beyond the drift"
    compile_, memory = f"{COMPILE_FACTOR - 1:.0%}", f"{MEMORY_FACTOR - 1:.0%}"
    lists = (
        CaseList(title="New failures", cases=tuple(map(ending, changes.new_failures)), bad=True),
        CaseList(title="Fixed failures", cases=tuple(map(ending, changes.fixed))),
        CaseList(title="Other endings", cases=tuple(map(ending, changes.other_endings))),
        CaseList(title="Other graph breaks", cases=tuple(map(broken, changes.breaks)), bad=True),
        CaseList(
            title=f"Eager itself changed{beyond} (the compiler may not be the cause)",
            cases=_eager(changes),
        ),
        CaseList(
            title=f"Compilation latency changed by more than {compile_} (timed once: no interval)",
            cases=_factors(changes, "compile_factor", COMPILE_FACTOR),
        ),
        CaseList(
            title=f"Memory ratio changed by more than {memory}",
            cases=_factors(changes, "memory_factor", MEMORY_FACTOR),
        ),
        CaseList(
            title="Not compared: measured under different conditions",
            cases=tuple(
                f"{plain(m.first.title)}: {plain(differences_text(m.differences))}"
                for m in changes.mismatches
            ),
        ),
        CaseList(title="Only in A", cases=_only(changes.only_first, changes.first)),
        CaseList(title="Only in B", cases=_only(changes.only_second, changes.second)),
        CaseList(title="Notes", cases=tuple(dict.fromkeys((*changes.first.notes, *changes.second.notes)))),
    )
    return tuple(case_list for case_list in lists if case_list.cases)


def verdict_line(changes: RunChanges) -> str:
    """``3 regressed, 1 improved, 0 same, 5 inconclusive of 9 timed in both``"""
    counts = ", ".join(f"{len(changes.with_verdict(v))} {word}" for v, word in WORDS.items())
    return f"{counts}; {len(changes.timed)} timed in both of {counted(len(changes.changes), 'result')} shared"


def _eager(changes: RunChanges) -> tuple[str, ...]:
    """Each model once, with its interval, without a correction for multiple comparisons."""
    sentences: dict[str, str] = {}
    for change in changes.changes:
        time = change.eager
        if time and not time.within(1) and abs(time.log) > changes.limits.log:
            title = change.first.title.rpartition(", ")[0]
            sentences.setdefault(title, f"{title}: {estimate_text(time)} of its time")
    return tuple(sentences.values())


def _only(results: Sequence[Result], run: Run) -> tuple[str, ...]:
    """The results; one line for all results of a compiler that the other run lacks."""
    every = Counter(result.compiler for result in run.results)
    here = Counter(result.compiler for result in results)
    whole = {compiler for compiler, count in here.items() if 1 < count == every[compiler]}
    lines = [plain(f"{compiler}: all {here[compiler]} results") for compiler in here if compiler in whole]
    return (*lines, *(result.title for result in results if result.compiler not in whole))


def _factors(changes: RunChanges, which: str, limit: float) -> tuple[str, ...]:
    changed = []
    for change in changes.changes:
        factor = change.compile_factor if which == "compile_factor" else change.memory_factor
        if factor is not None and abs(math.log(factor)) > math.log(limit):
            first, second = change.first, change.second
            if which == "compile_factor":
                values = [seconds_text(r.compile_s or 0.0) + " s" for r in (first, second)]
            else:
                values = [ratio_text(r.memory_ratio or 0.0) for r in (first, second)]
            changed.append((factor, f"{first.title}: {' -> '.join(values)} ({ratio_text(factor)})"))
    return tuple(text for _, text in sorted(changed, reverse=which == "compile_factor"))


def estimate_text(estimate: Estimate | None) -> str:
    return MISSING if estimate is None else speedup_text(estimate.factor, estimate.low, estimate.high)


def threshold_line(changes: RunChanges) -> str:
    if changes.paired:
        rounds = "The rounds pair the two sides; the interval includes the noise within the rounds"
    else:
        rounds = "The rounds of two runs are not paired, so the interval includes the noise within each run"
    return (
        f"A speedup counts as changed if q < {changes.limits.alpha:g} and the change is beyond "
        f"{share_text(changes.limits.threshold)}; above 1 is better. {rounds} and the noise between "
        "processes."
    )
