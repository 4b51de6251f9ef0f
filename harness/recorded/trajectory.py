"""What ``--trajectory`` records, a part of ``harness.schema``."""

from __future__ import annotations

from dataclasses import dataclass

AGAIN = "eager again"
NOISY = ("noisy 1", "noisy 2", "noisy 3", "noisy 4")
SEEDS = ("seed 1",)  # a second one would cost more than a dozen eager steps for each step
REPEATS = (1, 2)
"""The runs of ``--trajectory`` beside eager's and the candidates'."""
DEFAULT_OPTIMIZER = "adamw"
"""Of ``--trajectory``, where no ``--optimizer`` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One training run of ``--trajectory``; of all but eager's, differences from eager's at the same step."""

    name: str  # `eager`, `eager again`, `noisy 1`, `seed 1` (eager, other batches), or the candidate
    loss: tuple[float, ...] = ()  # at each step
    gradient_norm: tuple[float, ...] = ()  # at each step: the root of the sum of the squares of all gradients
    # at each place: distance from eager's parameters / how far eager's have come from the first ones
    parameters: tuple[float, ...] = ()
    seconds: float = 0.0  # of the whole run


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """Training runs from the same weights, one step after the other (``--trajectory``)."""

    steps: int  # of each run
    optimizer: str  # a word of `--optimizer`, or the function
    learning_rate: float | None  # null: the function has its own
    data: str  # `batches`, or `one batch`, again and again
    places: tuple[int, ...]  # steps, from 1, after which the parameters were compared
    resolution: float  # the machine epsilon of the loss
    eager: Course  # the first run
    courses: tuple[Course, ...]  # eager again, noisy eagers, another seed
    candidate: Course  # its run from the same weights
    # of a candidate that is outside: its runs from weights with other last digits
    repeats: tuple[Course, ...] = ()
