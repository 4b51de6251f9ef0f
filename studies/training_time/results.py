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
    """A variant with one seed."""

    seed: int
    status: str
    message: str
    prepare_s: float
    chunks: Sequence[Line]

    def step_times(self) -> dict[int, float]:
        """Seconds of a step by the first step of its chunk, after the first steps, which compile."""
        return {c["first"]: c["seconds"] / c["steps"] for c in self.chunks if c["first"] >= FIRST_STEPS}

    def losses(self) -> dict[int, float]:
        """The losses on held-out text by the step after which they were evaluated."""
        return {c["first"] + c["steps"] - 1: c["valid"] for c in self.chunks if c["valid"] is not None}

    @property
    def compile_s(self) -> float:
        """Time of the preparation, and of the first steps beyond that of as many later steps."""
        return self.prepare_s + self._extra_s()

    @property
    def run_s(self) -> float:
        return float(sum(c["seconds"] for c in self.chunks)) - self._extra_s()

    def _extra_s(self) -> float:
        step_s = median(self.step_times().values() or [0.0])
        early = [c for c in self.chunks if c["first"] < FIRST_STEPS and step_s]
        return max(0.0, float(sum(c["seconds"] - c["steps"] * step_s for c in early)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A variant over all seeds. Times in seconds; None if no training finished."""

    name: str
    trainings: Sequence[Training]

    @property
    def precision(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def mode(self) -> str:
        return self.name.partition(" ")[2]

    @property
    def finished(self) -> list[Training]:
        return [training for training in self.trainings if training.status == PASS]

    @property
    def failed(self) -> Training | None:
        return next((training for training in self.trainings if training.status != PASS), None)

    @property
    def compile_s(self) -> float | None:
        """Of the first seed, whose caches were empty."""
        return self.finished[0].compile_s if self.finished else None

    @property
    def run_s(self) -> float | None:
        """The median of all seeds."""
        return median(training.run_s for training in self.finished) if self.finished else None

    @property
    def wall_s(self) -> float | None:
        return None if self.compile_s is None or self.run_s is None else self.compile_s + self.run_s

    def losses(self) -> dict[int, dict[int, float]]:
        """By seed and step; without step 0, before which nothing was learned."""
        return {
            training.seed: {step: loss for step, loss in training.losses().items() if step}
            for training in self.trainings
            if training.status in {PASS, CUT_SHORT}
        }


def variants_of(lines: Sequence[Line]) -> dict[str, Variant]:
    """The variants of a run, by name. A training without an outcome was ``CUT_SHORT``."""

    def training(variant: str, seed: int) -> Training:
        own = [line for line in lines if (line.get("variant"), line.get("seed")) == (variant, seed)]
        status, message = next(
            ((o["status"], o["message"]) for o in of_kind(own, "outcome")), (CUT_SHORT, "")
        )
        return Training(
            seed=seed,
            status=status,
            message=message or "",
            prepare_s=sum(line["prepare_s"] for line in of_kind(own, "prepared")),
            chunks=of_kind(own, "chunk"),
        )

    seeds = range(lines[0]["sizes"]["seeds"])
    return {
        name: Variant(name=name, trainings=[training(name, seed) for seed in seeds])
        for name in lines[0]["variants"]
    }


def paired(slow: Variant | None, fast: Variant) -> PairedEstimate | None:
    """The speedup of the steps of ``fast`` over those of ``slow``: same seed, same steps."""
    left, right = (
        {
            (training.seed, first): step_s
            for training in side
            for first, step_s in training.step_times().items()
        }
        for side in (slow.finished if slow else [], fast.finished)
    )
    both = [place for place in right if place in left]
    return paired_speedup([left[place] for place in both], [right[place] for place in both]) if both else None


def following(variant: Variant, eager: Variant | None) -> tuple[float | None, float | None]:
    """The distance from eager and the spread of eager over its seeds, as root mean square differences of
    held-out losses, in nats."""
    ours, theirs = variant.losses(), eager.losses() if eager else {}
    return (
        _root_mean_square((ours[seed], theirs[seed]) for seed in ours if seed in theirs),
        _root_mean_square(combinations(theirs.values(), 2)),
    )


def _root_mean_square(pairs: Iterable[tuple[dict[int, float], dict[int, float]]]) -> float | None:
    squares = [(a[step] - b[step]) ** 2 for a, b in pairs for step in a if step in b]
    return fmean(squares) ** 0.5 if squares else None
