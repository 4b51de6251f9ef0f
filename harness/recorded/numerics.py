"""What ``--numerics`` records, a part of ``harness.schema``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How far the first call of a run is from eager's, and from fp64 (``--numerics``, docs/NUMERICS.md).

    Of outputs, loss and gradients. What is not defined is None.
    """

    run: str  # the candidate; of a control `eager again`, `eager, 1 thread` or `noisy eager`
    elements: int
    elements_of: int  # compared elements, and all: of a large tensor, blocks are compared
    elements_equal: int
    tensors: int
    tensors_equal: int  # those with equal bits; all tensors
    # elements without a ULP: integers and booleans; different ones that are NaN or infinite, or of a tensor
    # in another form
    integers: int
    undefined: int
    ulp_median: float | None = None
    ulp_99: float | None = None
    ulp_largest: float | None = None  # distances to eager, in the tensor's own type: of all elements
    ulp_largest_in: str = ""  # the tensor
    sqnr_db: float | None = None
    eager_sqnr_db: float | None = None
    noisy_sqnr_db: float | None = None  # against fp64, median of the tensors: of this run, eager, noisy eager
    sqnr_lowest_db: float | None = None
    sqnr_lowest_in: str = ""  # the lowest of this run, of a tensor that parity judges
    cosine: float | None = None
    eager_cosine: float | None = None
    noisy_cosine: float | None = None  # with fp64, as the SQNR
    nearer: str = ""  # to fp64: `candidate` (this run), `eager`, or `equal` (within 1 dB)
    logits: str = ""  # the output; empty: none is known to be logits, and the next fields are not defined
    logits_rows: int | None = None  # that were compared
    top_1: float | None = None  # share of rows with eager's most probable class
    log_prob_mean: float | None = None
    log_prob_largest: float | None = None  # absolute changes of the log probability of eager's class
    kl: float | None = None  # KL(eager || this run), in nats, mean of the rows

    @property
    def bit_equal(self) -> float | None:
        """The share of elements."""
        return self.elements_equal / self.elements if self.elements else None

    @property
    def tensors_bit_equal(self) -> float | None:
        """The share of tensors."""
        return self.tensors_equal / self.tensors if self.tensors else None
