"""Results of study A from its records: curves, compile and run times, ratios, checks against eager."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from studies.journal import Line, of_kind
from studies.training_time.chunks import FIRST_STEPS

EAGER = "eager"
REFERENCE = ("float32", EAGER)
CUT_SHORT = "CUT_SHORT"
JUDGED = ("PASS", CUT_SHORT)
"""Trainings whose evaluations are compared. A killed training is compared up to its last evaluation."""
ASTRAY = "DOES NOT FOLLOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training of one variant with one seed: chunks, losses and evaluations in the order of the steps."""

    precision: str
    mode: str
    seed: int
    status: str  # "PASS", a failure, or "CUT_SHORT" if the run was killed
    message: str | None
    prepare_s: float
    chunks: tuple[tuple[int, int, float], ...]  # first step, steps, seconds
    losses: tuple[float, ...]  # of each step's batch
    evaluations: tuple[tuple[int, float, float], ...]  # step, training text, held-out text

    @property
    def steady_step_s(self) -> float | None:
        """The median time of a step after the first steps. None without a later chunk."""
        later = [seconds / steps for first, steps, seconds in self.chunks if first >= FIRST_STEPS]
        return median(later) if later else None

    @property
    def wall_s(self) -> float:
        return self.prepare_s + sum(seconds for _, _, seconds in self.chunks)

    @property
    def compile_s(self) -> float:
        """Time of the preparation, and the time of the first steps beyond that of as many later steps."""
        step = self.steady_step_s
        if step is None:
            return self.prepare_s
        early = [(steps, seconds) for first, steps, seconds in self.chunks if first < FIRST_STEPS]
        return self.prepare_s + max(0.0, sum(seconds - steps * step for steps, seconds in early))

    @property
    def run_s(self) -> float:
        return self.wall_s - self.compile_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A variant over all seeds. Times in seconds; None if no training finished.

    ``compile_s``: of the first seed, whose caches were empty. ``run_s``: median of all seeds. ``wall_s``: the
    sum of both. ``step_ratio``: speedup over float32 eager, from pairs of steady chunks of the same seed and
    steps, with an interval if there are enough pairs.
    """

    precision: str
    mode: str
    status: str
    message: str | None
    compile_s: float | None
    run_s: float | None
    valid: float | None  # loss on held-out text at the end, the mean of the seeds
    step_ratio: float | None
    ci: tuple[float, float] | None
    pairs: int

    @property
    def wall_s(self) -> float | None:
        return None if self.compile_s is None or self.run_s is None else self.compile_s + self.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Whether a compiled training follows eager of the same precision.

    Root mean square differences of held-out losses, in nats. ``distance``: between compiled and eager with
    the same seed. ``spread``: between eager with two seeds.
    """

    precision: str
    mode: str
    distance: float | None
    spread: float | None

    @property
    def verdict(self) -> str:
        if self.distance is None:
            return "did not train"
        if self.spread is None:
            return "unknown: takes two seeds or more"
        return "follows" if self.distance <= self.spread else ASTRAY


def trainings(lines: Sequence[Line]) -> list[Training]:
    """All trainings, in the order of the variants, then of the seeds."""
    names = [str(name) for name in lines[0]["variants"]]
    seeds = sorted({int(line["seed"]) for line in lines[1:]})
    return [
        _training(
            name, seed, [line for line in lines[1:] if line["variant"] == name and line["seed"] == seed]
        )
        for name in names
        for seed in seeds
    ]


def _training(name: str, seed: int, lines: Sequence[Line]) -> Training:
    precision, _, mode = name.partition(" ")
    chunks, outcomes = of_kind(lines, "chunk"), of_kind(lines, "outcome")
    evaluated = [line for line in chunks if line["valid"] is not None]
    return Training(
        precision=precision,
        mode=mode,
        seed=seed,
        status=outcomes[0]["status"] if outcomes else CUT_SHORT,
        message=outcomes[0]["message"] if outcomes else None,
        prepare_s=sum(line["prepare_s"] for line in of_kind(lines, "prepared")),
        chunks=tuple((line["first"], line["steps"], line["seconds"]) for line in chunks),
        losses=tuple(loss for line in chunks for loss in line["losses"]),
        evaluations=tuple(
            (line["first"] + line["steps"] - 1, line["train"], line["valid"]) for line in evaluated
        ),
    )


Groups = Mapping[tuple[str, str], list[Training]]


def grouped(found: Sequence[Training]) -> Groups:
    groups: dict[tuple[str, str], list[Training]] = {}
    for training in found:
        groups.setdefault((training.precision, training.mode), []).append(training)
    return groups


def rows(groups: Groups) -> list[Row]:
    reference = groups.get(REFERENCE, [])
    return [_row(precision, mode, members, reference) for (precision, mode), members in groups.items()]


def _row(precision: str, mode: str, members: Sequence[Training], reference: Sequence[Training]) -> Row:
    good = [member for member in members if member.status == "PASS"]
    bad = [member for member in members if member.status != "PASS"]
    steps = paired_steps(reference, good)
    return Row(
        precision=precision,
        mode=mode,
        status=bad[0].status if bad else "PASS",
        message=bad[0].message if bad else None,
        compile_s=good[0].compile_s if good else None,
        run_s=median(member.run_s for member in good) if good else None,
        valid=_mean([member.evaluations[-1][2] for member in good]),
        step_ratio=steps.ratio,
        ci=steps.ci,
        pairs=steps.pairs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """How many times as fast as other steps these steps are. ``ci`` is None with too few pairs."""

    ratio: float | None
    ci: tuple[float, float] | None
    pairs: int


def paired_steps(slow: Sequence[Training], fast: Sequence[Training]) -> Steps:
    """The speedup of ``fast`` over ``slow``, from steady chunks of the same seed and steps."""
    from runner.analysis.statistics import paired_speedup

    pairs = [
        pair
        for other in fast
        for one in slow
        if one.seed == other.seed
        for pair in zip(_steady(one), _steady(other), strict=False)
    ]
    if not pairs:
        return Steps(ratio=None, ci=None, pairs=0)
    estimate = paired_speedup([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    low, high = estimate.ci_low, estimate.ci_high
    ci = None if low is None or high is None else (low, high)
    return Steps(ratio=estimate.speedup, ci=ci, pairs=len(pairs))


def _steady(training: Training) -> list[float]:
    return [seconds / steps for first, steps, seconds in training.chunks if first >= FIRST_STEPS]


def following(groups: Groups) -> list[Following]:
    """Compares every other variant with eager of the same precision."""
    found = []
    for (precision, mode), members in groups.items():
        if mode == EAGER:
            continue
        eager = {t.seed: t for t in groups.get((precision, EAGER), []) if t.status in JUDGED}
        good = {t.seed: t for t in members if t.status in JUDGED}
        both = [(good[seed], eager[seed]) for seed in good if seed in eager]
        spread = [_distances(a, b) for a, b in combinations(eager.values(), 2)]
        found.append(
            Following(
                precision=precision,
                mode=mode,
                distance=_root_mean_square([_distances(a, b) for a, b in both]),
                spread=_root_mean_square(spread),
            )
        )
    return found


def _distances(one: Training, other: Training) -> list[float]:
    """Differences of held-out losses, without those of step 0, before which nothing was learned."""
    pairs = zip(one.evaluations[1:], other.evaluations[1:], strict=False)
    return [a[2] - b[2] for a, b in pairs]


def _root_mean_square(columns: Sequence[Sequence[float]]) -> float | None:
    values = [value for column in columns for value in column]
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
