"""What ``--numerics`` records, a part of ``harness.schema``."""

from __future__ import annotations

from dataclasses import dataclass


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
