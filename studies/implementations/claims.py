"""The claims of study B's source, held against a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from runner.analysis.digits import significant
from studies.expectations import FAILS, HOLDS, NOT_SHOWN, OPEN, Expectation, Judged, published
from studies.implementations.results import LEVELS, SOLVED, Fitted

BEHIND = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""
NEAR_PERFECT = 0.99
MUCH_FASTER = 5.0
ABOUT_EQUAL = 0.2
"""Nats. The published losses of TLTransformer and NanoGPT differ by as much at equal width."""
TAUGHT = "TLTransformer"
NOTHING: Judged = ("nothing to compare", OPEN)


def claims(fits: Sequence[Fitted]) -> list[Expectation]:
    """The claims on addition, then those on text, for the tasks that the run has."""
    return [
        Expectation(expected=expected, found=text, holds=holds)
        for task, judges in CLAIMS.items()
        if (members := [f for f in fits if f.task == task])
        for expected, judge in judges.items()
        for text, holds in (judge(members),)
    ]


def _verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def _trained(members: Sequence[Fitted], *models: str) -> list[Fitted]:
    return [f for f in members if f.status == "PASS" and f.last and (not models or f.model in models)]


def _transformers(members: Sequence[Fitted]) -> list[Fitted]:
    return [f for f in _trained(members) if f.model != "MLP"]


def _taught_and_others(members: Sequence[Fitted]) -> tuple[list[Fitted], list[Fitted]]:
    """TLTransformer, and the other transformers."""
    both = _transformers(members)
    return [f for f in both if f.model == TAUGHT], [f for f in both if f.model != TAUGHT]


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(significant(value, 3) for value in (min(values), max(values))))


def _named(f: Fitted) -> str:
    return f"{f.model} {f.learning_rate:g}"


def _last_accuracy(f: Fitted) -> float:
    return f.last.test_accuracy if f.last else 0.0


# -- addition ---------------------------------------------------------------------------


def _mlp_solves(members: Sequence[Fitted]) -> Judged:
    mlps = [f for f in members if f.model == "MLP"]
    solved = [(f, point) for f in mlps if (point := f.reached(SOLVED))]
    named = ", ".join(f"{f.learning_rate:g} after {point.seconds:.1f} s" for f, point in solved)
    text = f"at {len(solved)} of {len(mlps)}{f': {named}' if named else ''}"
    return text, _verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN


def _mlp_infers(members: Sequence[Fitted]) -> Judged:
    mlps, others = (
        [f.inference_micros for f in group if f.inference_micros]
        for group in (_trained(members, "MLP"), _transformers(members))
    )
    if not mlps or not others:
        return NOTHING
    factor = min(others) / max(mlps)
    text = f"µs per example: MLP {_span(mlps)}, transformers {_span(others)}: "
    return f"{text}{significant(factor, 2)} times or more", _verdict(factor >= MUCH_FASTER)


def _transformers_behind(members: Sequence[Fitted]) -> Judged:
    times = [point.seconds for f in _trained(members, "MLP") if (point := f.reached(SOLVED))]
    others = _transformers(members)
    if not times or not others:
        return NOTHING
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=lambda f: f.best_accuracy)
    text = (
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.best_accuracy:.1%} ({_named(best)})"
    )
    return text, _verdict(then < BEHIND and best.best_accuracy < SOLVED)


def _taught_is_best(members: Sequence[Fitted]) -> Judged:
    """That the source trained longer is no excuse once a run has taken as many steps."""
    ours, others = _taught_and_others(members)
    if not ours or not others:
        return NOTHING
    best, other = (max(group, key=_last_accuracy) for group in (ours, others))
    text = ", ".join(f"{_named(f)} ends at {_last_accuracy(f):.1%}" for f in (best, other))
    if _last_accuracy(best) >= NEAR_PERFECT:
        return text, _verdict(_last_accuracy(best) >= _last_accuracy(other))
    theirs = published_examples()
    seen = min(f.batch * f.last.step for f in ours if f.last)
    if seen >= theirs:
        return text, FAILS
    most = max(f.micros or 0.0 for f in ours)
    text += f", after {seen / 1e6:.1f} million examples or more; the published budget held "
    text += f"{theirs / 1e6:.1f} million, which take {significant(theirs * most / 1e6, 2)} s here"
    return text, NOT_SHOWN


def published_examples() -> float:
    """How many examples TLTransformer's published training saw."""
    (row,) = (row for row in published("addition") if row["model, learning rate"].startswith(TAUGHT))
    return 1e6 * float(row["seconds"]) / float(row["µs per example"])


def _taught_is_cheap(members: Sequence[Fitted]) -> Judged:
    first, second = ([f.micros for f in group if f.micros] for group in _taught_and_others(members))
    if not first or not second:
        return NOTHING
    text = f"µs per example: {_span(first)}, the others {_span(second)}"
    return text, _verdict(max(first) < min(second))


def _taught_is_sooner(members: Sequence[Fitted]) -> Judged:
    groups = _taught_and_others(members)
    if not all(groups):
        return NOTHING
    for level in reversed(LEVELS):
        first, second = (
            min((point.seconds for f in group if (point := f.reached(level))), default=None)
            for group in groups
        )
        if first is None and second is None:
            continue
        times = ["never" if t is None else f"after {t:.1f} s" for t in (first, second)]
        sooner = first is not None and (second is None or first < second)
        return f"{level:.1%} {times[0]}, the others {times[1]}", _verdict(sooner)
    return f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN


# -- Shakespeare ------------------------------------------------------------------------


def _losses(trained: Sequence[Fitted]) -> dict[str, float]:
    """The last held-out loss by the size in the name of the case."""
    return {f.case.rpartition("_")[2]: f.last.test_loss for f in trained if f.last}


def _mlp_fails(members: Sequence[Fitted]) -> Judged:
    mlps, others = (
        [f.last.test_loss for f in group if f.last]
        for group in (_trained(members, "MLP"), _transformers(members))
    )
    if not mlps or not others:
        return NOTHING
    text = f"MLPs {min(mlps):.2f} to {max(mlps):.2f}, transformers {min(others):.2f} to {max(others):.2f}"
    return text, _verdict(max(others) < min(mlps))


def _taught_and_nano_equal(members: Sequence[Fitted]) -> Judged:
    ours, nano = (_losses(_trained(members, model)) for model in (TAUGHT, "NanoGPT"))
    both = [size for size in ours if size in nano]
    if not both:
        return NOTHING
    text = "; ".join(f"{size} wide: {ours[size]:.2f} and {nano[size]:.2f}" for size in both)
    return text, _verdict(all(abs(ours[size] - nano[size]) <= ABOUT_EQUAL for size in both))


SOONER = f"{TAUGHT} trains faster than the other transformers"
CLAIMS: Mapping[str, Mapping[str, Callable[[Sequence[Fitted]], Judged]]] = {
    "addition": {
        "the MLP solves addition almost at once: 99.5 % at two of three learning rates or more": _mlp_solves,
        f"the MLP infers much faster than the transformers: {MUCH_FASTER:g} times or more": _mlp_infers,
        "in that time the transformers are well behind: below 90 %, and none solves it in its budget": (
            _transformers_behind
        ),
        f"{TAUGHT} is the best transformer on addition, and near perfect: {NEAR_PERFECT:.0%} at the end": (
            _taught_is_best
        ),
        f"{SOONER}: less time for an example": _taught_is_cheap,
        f"{SOONER}: sooner at an accuracy": _taught_is_sooner,
    },
    "shakespeare": {
        "the MLP fails on Shakespeare: every transformer's loss is lower than any MLP's": _mlp_fails,
        f"{TAUGHT} and NanoGPT are about equal on Shakespeare: at equal width, losses within "
        f"{ABOUT_EQUAL:g}": _taught_and_nano_equal,
    },
}
