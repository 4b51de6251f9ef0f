"""The claims of study B's source, held against a run. ``published.toml`` has their words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from runner.analysis.digits import significant
from studies.implementations.results import LEVELS, SOLVED, Fitted
from studies.report import FAILS, HOLDS, NOT_SHOWN, OPEN, Expectation, Judged
from studies.words import published, tables

BEHIND = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""
NEAR_PERFECT = 0.99
MUCH_FASTER = 5.0
ABOUT_EQUAL = 0.2
"""Nats. The published losses of TLTransformer and NanoGPT differ by as much at equal width."""
TAUGHT = "TLTransformer"
NOTHING: Judged = ("nothing to compare", OPEN)
Fits = Sequence[Fitted]


def claims(fits: Fits) -> list[Expectation]:
    """The claims on addition, then those on text, for the tasks that the run has."""
    return [
        Expectation(expected=texts[judge.__name__], seen=text, holds=holds)
        for task, judges in JUDGES.items()
        if (members := [f for f in fits if f.task == task])
        for texts in (tables("published")[task]["claims"],)
        for judge in judges
        for text, holds in (judge(members),)
    ]


def _verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def _mlps_and_others(members: Fits) -> tuple[Fits, Fits]:
    """Of the trained models, the MLPs and the transformers."""
    trained = [f for f in members if f.trained]
    return [f for f in trained if f.model == "MLP"], [f for f in trained if f.model != "MLP"]


def _taught_and_others(members: Fits) -> tuple[Fits, Fits]:
    """TLTransformer, and the other transformers."""
    both = _mlps_and_others(members)[1]
    return [f for f in both if f.model == TAUGHT], [f for f in both if f.model != TAUGHT]


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(significant(value, 3) for value in (min(values), max(values))))


def _named(f: Fitted) -> str:
    return f"{f.model} {f.learning_rate:g}"


def _times_to(level: float, members: Fits) -> list[float]:
    return [point.seconds for f in members if (point := f.reached(level))]


# -- addition ---------------------------------------------------------------------------


def mlp_solves(members: Fits) -> Judged:
    mlps = [f for f in members if f.model == "MLP"]
    solved = [f"{f.learning_rate:g} after {s:.1f} s" for f in mlps for s in _times_to(SOLVED, [f])]
    text = f"at {len(solved)} of {len(mlps)}{': ' if solved else ''}{', '.join(solved)}"
    return text, _verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN


def mlp_infers(members: Fits) -> Judged:
    groups = _mlps_and_others(members)
    mlps, others = ([f.inference_micros for f in group if f.inference_micros] for group in groups)
    if not mlps or not others:
        return NOTHING
    factor = min(others) / max(mlps)
    text = f"µs per example: MLP {_span(mlps)}, transformers {_span(others)}: "
    return f"{text}{significant(factor, 2)} times or more", _verdict(factor >= MUCH_FASTER)


def transformers_behind(members: Fits) -> Judged:
    mlps, others = _mlps_and_others(members)
    times = _times_to(SOLVED, mlps)
    if not times or not others:
        return NOTHING
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=lambda f: f.best_accuracy)
    text = (
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.best_accuracy:.1%} ({_named(best)})"
    )
    return text, _verdict(then < BEHIND and best.best_accuracy < SOLVED)


def taught_is_best(members: Fits) -> Judged:
    """That the source trained longer is no excuse once a run has taken as many steps."""
    ours, others = _taught_and_others(members)
    if not ours or not others:
        return NOTHING
    best, other = (max(group, key=lambda f: f.accuracy) for group in (ours, others))
    text = ", ".join(f"{_named(f)} ends at {f.accuracy:.1%}" for f in (best, other))
    if best.accuracy >= NEAR_PERFECT:
        return text, _verdict(best.accuracy >= other.accuracy)
    theirs = published_examples()
    seen = min(f.batch * f.last.step for f in ours if f.last)
    if seen >= theirs:
        return text, FAILS
    most = max(f.micros or 0.0 for f in ours)
    text += f", after {seen / 1e6:.1f} million examples or more; the published budget held "
    return (
        f"{text}{theirs / 1e6:.1f} million, which take {significant(theirs * most / 1e6, 2)} s here",
        NOT_SHOWN,
    )


def published_examples() -> float:
    """How many examples TLTransformer's published training saw."""
    (row,) = (row for row in published("addition") if row["model, learning rate"].startswith(TAUGHT))
    return 1e6 * float(row["seconds"]) / float(row["µs per example"])


def taught_is_cheap(members: Fits) -> Judged:
    first, second = ([f.micros for f in group if f.micros] for group in _taught_and_others(members))
    if not first or not second:
        return NOTHING
    text = f"µs per example: {_span(first)}, the others {_span(second)}"
    return text, _verdict(max(first) < min(second))


def taught_is_sooner(members: Fits) -> Judged:
    groups = _taught_and_others(members)
    if not all(groups):
        return NOTHING
    for level in reversed(LEVELS):
        first, second = (min(_times_to(level, group), default=None) for group in groups)
        if first is None and second is None:
            continue
        ours, others = ("never" if t is None else f"after {t:.1f} s" for t in (first, second))
        sooner = first is not None and (second is None or first < second)
        return f"{level:.1%} {ours}, the others {others}", _verdict(sooner)
    return f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN


# -- Shakespeare ------------------------------------------------------------------------


def _losses(group: Fits) -> dict[str, float]:
    """The last held-out loss by the size in the name of the case."""
    return {f.case.rpartition("_")[2]: f.last.test_loss for f in group if f.last}


def mlp_fails(members: Fits) -> Judged:
    mlps, others = ([f.last.test_loss for f in group if f.last] for group in _mlps_and_others(members))
    if not mlps or not others:
        return NOTHING
    text = f"MLPs {min(mlps):.2f} to {max(mlps):.2f}, transformers {min(others):.2f} to {max(others):.2f}"
    return text, _verdict(max(others) < min(mlps))


def taught_and_nano_equal(members: Fits) -> Judged:
    taught, others = _taught_and_others(members)
    ours, nano = _losses(taught), _losses([f for f in others if f.model == "NanoGPT"])
    both = [size for size in ours if size in nano]
    if not both:
        return NOTHING
    text = "; ".join(f"{size} wide: {ours[size]:.2f} and {nano[size]:.2f}" for size in both)
    return text, _verdict(all(abs(ours[size] - nano[size]) <= ABOUT_EQUAL for size in both))


JUDGES: Mapping[str, Sequence[Callable[[Fits], Judged]]] = {
    "addition": (
        mlp_solves,
        mlp_infers,
        transformers_behind,
        taught_is_best,
        taught_is_cheap,
        taught_is_sooner,
    ),
    "shakespeare": (mlp_fails, taught_and_nano_equal),
}
