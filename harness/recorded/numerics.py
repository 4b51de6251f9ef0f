"""What ``--numerics`` and ``--trajectory`` record, a part of ``harness.schema``."""

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
class Numerics:
    """How far the first call of a run is from eager's, and from fp64: ``docs/NUMERICS.md``.

    Of outputs, loss and gradients. ``run``: also a control: ``eager again``, ``eager, 1 thread``, ``noisy
    eager``. ``elements_of``: all; of a large tensor, blocks are compared. ``log_prob``: absolute changes of
    the log probability of eager's class, in nats, as ``kl``.
    """

    run: str  # the candidate or the control
    elements: int
    elements_of: int  # compared, and all
    elements_equal: int
    tensors: int
    tensors_equal: int  # those with equal bits
    integers: int
    undefined: int  # elements without a ULP
    ulp_median: float | None = None
    ulp_99: float | None = None
    ulp_largest: float | None = None
    sqnr_db: float | None = None
    eager_sqnr_db: float | None = None
    noisy_sqnr_db: float | None = None
    cosine: float | None = None
    eager_cosine: float | None = None
    noisy_cosine: float | None = None
    top_1: float | None = None
    log_prob_mean: float | None = None
    log_prob_largest: float | None = None
    kl: float | None = None  # as the columns; null: not defined
    ulp_largest_in: str = ""
    nearer: str = ""
    logits: str = ""  # the same, of texts
    logits_rows: int | None = None  # that were compared

    @property
    def bit_equal(self) -> float | None:
        """The share of elements."""
        return self.elements_equal / self.elements if self.elements else None

    @property
    def tensors_bit_equal(self) -> float | None:
        """The share of tensors."""
        return self.tensors_equal / self.tensors if self.tensors else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One training run of ``--trajectory``; of all but eager's, differences from eager's at the same step."""

    name: str  # `eager`, `eager again`, `noisy 1`, `seed 1` (eager, other batches), or the candidate
    loss: tuple[float, ...] = ()  # at each step
    gradient_norm: tuple[float, ...] = ()  # at each step: the root of the sum of the squares of all gradients
    # at each place: distance from eager's parameters / how far eager's have come from the first ones
    parameters: tuple[float, ...] = ()
    extra_gradients: tuple[str, ...] = ()  # parameters that have a gradient here, but none in eager
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
