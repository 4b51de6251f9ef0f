"""The claims of study B's source, held against a run."""

from __future__ import annotations

from collections.abc import Sequence

from runner.analysis.digits import significant
from studies.expectations import FAILS, HOLDS, NOT_SHOWN, OPEN, Expectation
from studies.implementations.published import ADDITION
from studies.implementations.results import LEVELS, SOLVED, Fitted

BEHIND = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""
NEAR_PERFECT = 0.99
MUCH_FASTER = 5.0
ABOUT_EQUAL = 0.2
"""Nats. The published losses of TLTransformer and NanoGPT differ by as much at equal width."""
TAUGHT = "TLTransformer"
NOTHING = "nothing to compare"


def claims(found: Sequence[Fitted]) -> list[Expectation]:
    """The claims on addition, then those on text, for the tasks that the run has."""
    on_addition, on_text = (
        [f for f in found if f.task == task and f.status == "PASS" and f.last]
        for task in ("addition", "shakespeare")
    )
    mlps = [f for f in found if (f.task, f.model) == ("addition", "MLP")]
    made: list[Expectation] = []
    if any(f.task == "addition" for f in found):
        made += [
            _mlp_solves(mlps),
            _mlp_infers(on_addition),
            _transformers_behind(on_addition),
            _taught_is_best(on_addition),
            _taught_is_cheap(on_addition),
            _taught_is_sooner(on_addition),
        ]
    if any(f.task == "shakespeare" for f in found):
        made += [_mlp_fails(on_text), _taught_and_nano_equal(on_text)]
    return made


def _made(expected: str, found: str, holds: str) -> Expectation:
    return Expectation(expected=expected, found=found, holds=holds)


def _verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def _mlp_solves(mlps: Sequence[Fitted]) -> Expectation:
    solved = [(f, point) for f in mlps if (point := f.reached(SOLVED))]
    named = ", ".join(f"{f.learning_rate:g} after {point.seconds:.1f} s" for f, point in solved)
    return _made(
        "the MLP solves addition almost at once: 99.5 % at two of three learning rates or more",
        f"at {len(solved)} of {len(mlps)}{f': {named}' if named else ''}",
        _verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN,
    )


def _mlp_infers(trained: Sequence[Fitted]) -> Expectation:
    expected = f"the MLP infers much faster than the transformers: {MUCH_FASTER:g} times or more"
    mlps = [f.inference_micros for f in trained if f.model == "MLP" and f.inference_micros]
    others = [f.inference_micros for f in trained if f.model != "MLP" and f.inference_micros]
    if not mlps or not others:
        return _made(expected, "inference was not timed in this run", OPEN)
    factor = min(others) / max(mlps)
    return _made(
        expected,
        f"µs per example: MLP {_span(mlps)}, transformers {_span(others)}: {significant(factor, 2)} times "
        "or more",
        _verdict(factor >= MUCH_FASTER),
    )


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(significant(value, 3) for value in (min(values), max(values))))


def _transformers_behind(trained: Sequence[Fitted]) -> Expectation:
    expected = "in that time the transformers are well behind: below 90 %, and none solves it in its budget"
    times = [p.seconds for f in trained if f.model == "MLP" and (p := f.reached(SOLVED))]
    others = [f for f in trained if f.model != "MLP"]
    if not times or not others:
        return _made(expected, NOTHING, OPEN)
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=lambda f: f.best_accuracy)
    return _made(
        expected,
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.best_accuracy:.1%} ({_named(best)})",
        _verdict(then < BEHIND and best.best_accuracy < SOLVED),
    )


def _named(f: Fitted) -> str:
    return f"{f.model} {f.learning_rate:g}"


def _last_accuracy(f: Fitted) -> float:
    return f.last.test_accuracy if f.last else 0.0


def _taught_is_best(trained: Sequence[Fitted]) -> Expectation:
    """That the source trained longer is no excuse once a run has taken as many steps."""
    expected = (
        f"{TAUGHT} is the best transformer on addition, and near perfect: {NEAR_PERFECT:.0%} at the end"
    )
    ours, others = _taught_and_others(trained)
    if not ours or not others:
        return _made(expected, NOTHING, OPEN)
    best, other = (max(group, key=_last_accuracy) for group in (ours, others))
    text = ", ".join(f"{_named(f)} ends at {_last_accuracy(f):.1%}" for f in (best, other))
    if _last_accuracy(best) >= NEAR_PERFECT:
        return _made(expected, text, _verdict(_last_accuracy(best) >= _last_accuracy(other)))
    theirs = ADDITION[TAUGHT, 1e-3].examples
    seen = min(f.batch * f.last.step for f in ours if f.last)
    if seen >= theirs:
        return _made(expected, text, FAILS)
    most = max(f.micros or 0.0 for f in ours)
    return _made(
        expected,
        f"{text}, after {seen / 1e6:.1f} million examples or more; the published budget held "
        f"{theirs / 1e6:.1f} million, which take {significant(theirs * most / 1e6, 2)} s here",
        NOT_SHOWN,
    )


def _taught_is_cheap(trained: Sequence[Fitted]) -> Expectation:
    expected = f"{TAUGHT} trains faster than the other transformers: less time for an example"
    ours, others = _taught_and_others(trained)
    first, second = ([f.micros for f in group if f.micros] for group in (ours, others))
    if not first or not second:
        return _made(expected, NOTHING, OPEN)
    text = f"µs per example: {_span(first)}, the others {_span(second)}"
    return _made(expected, text, _verdict(max(first) < min(second)))


def _taught_is_sooner(trained: Sequence[Fitted]) -> Expectation:
    expected = f"{TAUGHT} trains faster than the other transformers: sooner at an accuracy"
    groups = _taught_and_others(trained)
    if not all(groups):
        return _made(expected, NOTHING, OPEN)
    for level in reversed(LEVELS):
        first, second = (_seconds_to(level, group) for group in groups)
        if first is None and second is None:
            continue
        times = ["never" if t is None else f"after {t:.1f} s" for t in (first, second)]
        sooner = first is not None and (second is None or first < second)
        return _made(expected, f"{level:.1%} {times[0]}, the others {times[1]}", _verdict(sooner))
    return _made(expected, f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN)


def _taught_and_others(trained: Sequence[Fitted]) -> tuple[list[Fitted], list[Fitted]]:
    """TLTransformer, and the other transformers."""
    return (
        [f for f in trained if f.model == TAUGHT],
        [f for f in trained if f.model not in (TAUGHT, "MLP")],
    )


def _seconds_to(level: float, trained: Sequence[Fitted]) -> float | None:
    return min((point.seconds for f in trained if (point := f.reached(level))), default=None)


def _losses(trained: Sequence[Fitted], model: str) -> dict[str, float]:
    """The last held-out loss by the size in the name of the case."""
    return {f.case.rpartition("_")[2]: f.last.test_loss for f in trained if f.model == model and f.last}


def _mlp_fails(trained: Sequence[Fitted]) -> Expectation:
    expected = "the MLP fails on Shakespeare: every transformer's loss is lower than any MLP's"
    mlps = [f.last.test_loss for f in trained if f.model == "MLP" and f.last]
    others = [f.last.test_loss for f in trained if f.model != "MLP" and f.last]
    if not mlps or not others:
        return _made(expected, NOTHING, OPEN)
    text = f"MLPs {min(mlps):.2f} to {max(mlps):.2f}, transformers {min(others):.2f} to {max(others):.2f}"
    return _made(expected, text, _verdict(max(others) < min(mlps)))


def _taught_and_nano_equal(trained: Sequence[Fitted]) -> Expectation:
    expected = (
        f"{TAUGHT} and NanoGPT are about equal on Shakespeare: at equal width, losses within {ABOUT_EQUAL:g}"
    )
    ours, nano = (_losses(trained, model) for model in (TAUGHT, "NanoGPT"))
    both = [size for size in ours if size in nano]
    if not both:
        return _made(expected, NOTHING, OPEN)
    text = "; ".join(f"{size} wide: {ours[size]:.2f} and {nano[size]:.2f}" for size in both)
    return _made(expected, text, _verdict(all(abs(ours[s] - nano[s]) <= ABOUT_EQUAL for s in both)))
