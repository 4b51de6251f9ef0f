"""Results of study A from its records: losses, compile and run times, ratios, distances from eager."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import paired_speedup
from studies.journal import CUT_SHORT, PASS, Line, of_kind
from studies.training_time.chunks import FIRST_STEPS

EAGER = "eager"
REFERENCE = f"float32 {EAGER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A variant with one seed; without an outcome it was ``CUT_SHORT``. Times in seconds.

    ``compile_s``: of the preparation, and of the first steps beyond that of as many later steps. ``steps``:
    of a step, by the first step of its chunk, without the first steps. ``losses``: on held-out text, by the
    step after which they were evaluated.
    """

    seed: int
    status: str
    message: str
    compile_s: float
    run_s: float
    steps: dict[int, float]
    losses: dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A variant over all seeds. ``compile_s``: of the first seed, whose caches were empty. ``run_s``: the
    median of all seeds. None if no training finished. ``failed``: the first that did not."""

    name: str
    precision: str
    mode: str
    trainings: Sequence[Training]
    finished: Sequence[Training]
    failed: Training | None
    compile_s: float | None
    run_s: float | None

    @property
    def wall_s(self) -> float | None:
        return None if self.compile_s is None or self.run_s is None else self.compile_s + self.run_s


def variants_of(lines: Sequence[Line]) -> dict[str, Variant]:
    """The variants of a run, by name."""
    seeds = range(lines[0]["sizes"]["seeds"])
    return {
        name: _variant(name, [_training(lines, name, seed) for seed in seeds])
        for name in lines[0]["variants"]
    }


def _training(lines: Sequence[Line], variant: str, seed: int) -> Training:
    own = [line for line in lines if (line.get("variant"), line.get("seed")) == (variant, seed)]
    chunks = of_kind(own, "chunk")
    outcome = next(iter(of_kind(own, "outcome")), {"status": CUT_SHORT, "message": ""})
    steps = {c["first"]: c["seconds"] / c["steps"] for c in chunks if c["first"] >= FIRST_STEPS}
    step_s = median(steps.values()) if steps else 0.0
    early = [c["seconds"] - c["steps"] * step_s for c in chunks if c["first"] < FIRST_STEPS]
    extra_s = max(0.0, sum(early)) if steps else 0.0
    return Training(
        seed=seed,
        status=outcome["status"],
        message=outcome["message"] or "",
        compile_s=sum(line["prepare_s"] for line in of_kind(own, "prepared")) + extra_s,
        run_s=sum(c["seconds"] for c in chunks) - extra_s,
        steps=steps,
        losses={c["first"] + c["steps"] - 1: c["valid"] for c in chunks if c["valid"] is not None},
    )


def _variant(name: str, trainings: Sequence[Training]) -> Variant:
    finished = [training for training in trainings if training.status == PASS]
    return Variant(
        name=name,
        precision=name.partition(" ")[0],
        mode=name.partition(" ")[2],
        trainings=trainings,
        finished=finished,
        failed=next((training for training in trainings if training not in finished), None),
        compile_s=finished[0].compile_s if finished else None,
        run_s=median(training.run_s for training in finished) if finished else None,
    )


def paired(slow: Variant | None, fast: Variant) -> PairedEstimate | None:
    """The speedup of the steps of ``fast`` over those of ``slow``: same seed, same steps."""
    left, right = (
        {(training.seed, first): step_s for training in side for first, step_s in training.steps.items()}
        for side in (slow.finished if slow else [], fast.finished)
    )
    both = [place for place in right if place in left]
    return paired_speedup([left[place] for place in both], [right[place] for place in both]) if both else None


def following(variant: Variant, eager: Variant | None) -> tuple[float | None, float | None]:
    """The distance from eager and the spread of eager over its seeds, as root mean square differences of
    held-out losses, in nats; without step 0, before which nothing was learned."""
    ours, theirs = (
        {t.seed: t.losses for t in side.trainings if t.status in {PASS, CUT_SHORT}} if side else {}
        for side in (variant, eager)
    )
    return (
        _root_mean_square((ours[seed], theirs[seed]) for seed in ours if seed in theirs),
        _root_mean_square(combinations(theirs.values(), 2)),
    )


def _root_mean_square(pairs: Iterable[tuple[dict[int, float], dict[int, float]]]) -> float | None:
    squares = [(a[step] - b[step]) ** 2 for a, b in pairs for step in a if step and step in b]
    return fmean(squares) ** 0.5 if squares else None
