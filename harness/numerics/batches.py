"""``--batch-invariant``: whether a row of the outputs depends on the batch that it is computed in.

After all rounds, the forward of eager and of each candidate runs with each row alone (at most ``MOST_ROWS``
of them) and with three batches of the same size in which each row has another place or other neighbors. Each
row is compared with the same row of the model's own batch, computed by the same variant. All sizes of a
batch that is alone are new to a compiler, which may compile again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from harness.counters import graphs_compiled
from harness.failures import line_of, log_traceback
from harness.loading.sizes import batch_of, with_rows
from harness.metrics import ByVariant, Ended
from harness.numerics.bits import other_bits
from harness.numerics.figures import distance, quantiles, sqnr_db
from harness.schema import BASELINE, Scalar
from harness.tensors import Tensors, listed, named_tensors
from harness.timing.step import Variant, seed_everything

MOST_ROWS = 32  # that are computed alone, evenly chosen
MOST = 1 << 21  # elements of which the quantiles are computed, evenly chosen; the largest is of all
DEPENDS_DB = 20.0  # a row that differs by more than a tenth of its size does so by the model's own definition


def batch_invariance(ended: Ended) -> ByVariant:
    """Numbers of each variant. A variant that fails has a note."""
    numbers: ByVariant = {}
    for name, variant in ended.variants.items():
        rows = Rows(ended, variant)
        try:
            rows.compare()
        except Exception as error:
            log_traceback()
            rows.notes.append(f"failed: {type(error).__name__}: {line_of(error)}")
        known = {**rows.company.numbers("row_company"), **rows.alone.numbers("row_alone")}
        if name == BASELINE and min(rows.company.least_db, rows.alone.least_db) < DEPENDS_DB:
            rows.notes.append("rows depend on each other by more than rounding, as with batch statistics")
        numbers[name] = {**known, "row_note": "; ".join(rows.notes) or None}
    return numbers


@dataclass(slots=True)
class Apart:
    """What many comparisons of a row with itself add up to. ``elements``: how many are expected."""

    elements: int = 0
    compared: int = 0
    equal: int = 0
    largest: float = -math.inf
    least_db: float = math.inf
    ulp: list[torch.Tensor] = field(default_factory=list)

    def add(self, row: torch.Tensor, again: torch.Tensor) -> None:
        known = distance(row, again)
        self.compared, self.equal = self.compared + known.elements, self.equal + known.equal
        if known.ulp.numel():
            self.largest = max(self.largest, float(known.ulp.max()))
            self.ulp.append(known.ulp[:: (1 + self.elements // MOST) | 1].cpu())
            self.least_db = min(self.least_db, sqnr_db(row, again))

    def numbers(self, name: str) -> dict[str, Scalar]:
        """None for what is not defined: nothing was compared, or no element has an ULP."""
        numbers: dict[str, Scalar] = {f"{name}_equal": self.equal / self.compared if self.compared else None}
        known = [*quantiles(self.ulp, (0.5, 0.99)), self.largest]
        for word, value in zip(("median", "99", "largest"), known, strict=True):
            numbers[f"{name}_ulp_{word}"] = value if math.isfinite(value) else None
        return numbers


class Rows:
    """The rows of one variant."""

    def __init__(self, ended: Ended, variant: Variant) -> None:
        self._ended, self._variant = ended, variant
        self.alone, self.company, self.notes = Apart(), Apart(), list[str]()

    def compare(self) -> None:
        """Other company first: it compiles nothing."""
        size = batch_of(self._variant.program) or 0
        if size < 2 or self._variant.whole:
            why = "the whole step is compiled" if self._variant.whole else "the batch has fewer than two rows"
            self.notes.append(f"not defined: {why}")
            return
        every, again = (self._outputs(range(size), more) for more in (0, 1))
        names = [name for name, tensor in every.items() if tensor.dim() and tensor.shape[0] == size]
        if (random := other_bits(every, again)) or not names:
            why = "two calls with other seeds differ" if random else f"no output has {size} rows"
            self.notes.append(f"not defined: {why}")
            return
        if others := [name for name, tensor in every.items() if tensor.dim() and name not in names]:
            self.notes.append(f"{listed(others)}: not defined, because its first dimension is not the batch")
        ours = {name: every[name] for name in names}
        self._add(self.company, ours, list(_companies(size)))
        graphs = graphs_compiled()
        chosen = range(0, size, -(-size // MOST_ROWS))
        self._add(self.alone, ours, [[row] for row in chosen])
        if graphs := graphs_compiled() - graphs:
            self.notes.append(f"a batch of one was compiled by itself, as a constant (graphs: {graphs})")

    def _add(self, apart: Apart, every: Tensors, batches: Sequence[Sequence[int]]) -> None:
        size = next(iter(every.values())).shape[0]
        apart.elements = sum(map(len, batches)) * sum(t.numel() for t in every.values()) // size
        for batch in batches:
            again = self._outputs(batch)
            for name, tensor in every.items():
                step = max(1, MOST * size // (1 + tensor.numel()))  # a copy in fp64 needs memory
                for place in range(0, len(batch), step):
                    rows = list(batch[place : place + step])
                    apart.add(tensor[rows], again[name][place : place + step])

    def _outputs(self, rows: Sequence[int], seed: int = 0) -> Tensors:
        variant = self._variant
        variant.restore()
        seed_everything(self._ended.job.protocol.seed + seed)
        output = variant.output_for(with_rows(variant.program, rows))
        return {name: tensor.detach().clone() for name, tensor in named_tensors(output, "output")}


def _companies(size: int) -> Iterator[list[int]]:
    """The rows of batches of this size: in reversed order, and each second row in its neighbor's place."""
    yield [*range(size)][::-1]
    yield [row // 2 * 2 for row in range(size)]
    yield [min(row | 1, size - 1) for row in range(size)]
