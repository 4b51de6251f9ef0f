"""The numerics card (``--numerics``): how far a candidate's first call is from eager's, and from fp64.

It looks at the outputs, the loss and the gradients of calls that the check of parity makes anyway. Of a large
tensor it sees the blocks of parity's sketch. ``docs/NUMERICS.md`` has the definitions with their sources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from harness.devices import of
from harness.numerics.figures import cosine, distance, quantiles, sqnr_db
from harness.parity.checks import Checks
from harness.parity.measure import WHOLE_OUTPUT, align, family_of, is_exact_kind, same_bits, sketch, whole_of
from harness.parity.rule import Truth, wrong_form
from harness.schema import Numerics
from harness.tensors import Tensors
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

FAMILIES = ("value", "gradient")
EQUAL_DB = 1.0  # within it neither of two runs is nearer to fp64
SHARES = (0.5, 0.99)  # of the ULP distances


class Fidelity(NamedTuple):
    """Against fp64: medians of the tensors, and the lowest SQNR with its tensor. None: not defined."""

    sqnr_db: float | None = None
    cosine: float | None = None
    lowest_db: float | None = None
    lowest_in: str = ""


class Cards:
    """Of one job. It sees each result before parity sketches it: ``bench.take`` goes through it.

    First ``open`` is called, then ``of`` for each candidate.
    """

    def __init__(self, bench: Workbench) -> None:
        self.controls: tuple[Numerics, ...] = ()
        self._bench = bench
        self._sketches = bench.take is sketch
        self._take, bench.take = bench.take, self._keep
        self._seen = dict[str, tuple[int, torch.dtype]]()  # of each tensor: its elements and type in eager
        self._logits = list[str]()  # outputs that may be logits
        # rows of these, by what is kept of them
        self._rows: MutableMapping[torch.Tensor, torch.Tensor] = WeakIdKeyDictionary()
        self._eager = self._noisy = Fidelity()

    def _keep(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name not in self._seen:
            self._seen[name] = tensor.numel(), tensor.dtype
            if is_logits(name, tensor, self._bench.workload.target):
                self._logits.append(name)
        kept = self._take(name, tensor)
        if name in self._logits and kept.shape != tensor.shape:
            self._rows[kept] = rows_of(tensor).clone()
        return kept

    def open(self, checks: Checks, eager: Variant, second: Tensors) -> None:
        """Makes the controls: eager's ``second`` run, one with other threads (on a CPU), noisy eager."""
        truth, noisy = checks.truth, checks.noisy[0] if checks.noisy else {}
        self._eager, self._noisy = self._fidelity(truth, truth.eager), self._fidelity(truth, noisy)
        runs = [("eager again", second)]
        if not of(self._bench.device).accelerated:
            runs.append(self._with_other_threads(eager))
        runs += [("noisy eager", noisy)] if noisy else []
        self.controls = tuple(self.of(name, results, truth) for name, results in runs)

    def _with_other_threads(self, eager: Variant) -> tuple[str, Tensors]:
        threads = torch.get_num_threads()
        other = threads // 2 or 2
        torch.set_num_threads(other)
        try:
            return f"eager, {other} thread{'' if other == 1 else 's'}", self._bench.run(eager)
        finally:
            torch.set_num_threads(threads)

    def of(self, run: str, results: Tensors, truth: Truth) -> Numerics:
        """The card of a first call. ``truth``: of parity, on the same call."""
        known = [n for n in dict.fromkeys((*truth.eager, *results)) if family_of(n) in FAMILIES]
        tensors = tensors_equal = elements = equal = integers = undefined = 0
        ulp = dict[str, torch.Tensor]()
        for name in known:
            eager, given = truth.eager.get(name), results.get(name)
            form = wrong_form(name, eager, given)
            if eager is None and not form:
                continue  # a gradient of zeros
            tensors += 1
            if form or eager is None:
                size = self._seen[name][0] if eager is None else eager.numel()
                elements, undefined = elements + size, undefined + size
                continue
            ours, theirs = self._alike(name, eager, torch.zeros_like(eager) if given is None else given)
            off = distance(theirs, ours)
            elements, equal, undefined = elements + off.elements, equal + off.equal, undefined + off.undefined
            tensors_equal += off.bit_equal
            integers += off.elements if is_exact_kind(ours) else 0
            ulp[name] = off.ulp.cpu()
        median, most = (_known(value) for value in quantiles(ulp.values(), SHARES))
        largest = {name: float(each.max()) for name, each in ulp.items() if each.numel()}
        furthest = max(largest, key=lambda name: largest[name], default="")
        here = self._fidelity(truth, results)
        return Numerics(
            run=run,
            elements=elements,
            elements_of=sum(self._seen[name][0] for name in known),
            elements_equal=equal,
            tensors=tensors,
            tensors_equal=tensors_equal,
            integers=integers,
            undefined=undefined,
            ulp_median=median,
            ulp_99=most,
            ulp_largest=largest.get(furthest),
            ulp_largest_in=furthest if largest.get(furthest) else "",
            sqnr_db=here.sqnr_db,
            eager_sqnr_db=self._eager.sqnr_db,
            noisy_sqnr_db=self._noisy.sqnr_db,
            sqnr_lowest_db=here.lowest_db,
            sqnr_lowest_in=here.lowest_in,
            cosine=here.cosine,
            eager_cosine=self._eager.cosine,
            noisy_cosine=self._noisy.cosine,
            nearer=nearer(here.sqnr_db, self._eager.sqnr_db),
            **self._of_logits(results, truth),
        )

    def _alike(self, name: str, *sides: torch.Tensor) -> Sequence[torch.Tensor]:
        """What the card sees of the tensor: of a sketch the blocks, in the tensor's own type if they are."""
        blocks = [self._blocks(name, side) for side in sides]
        own = [side.to(self._seen[name][1]) for side in blocks]
        return own if all(same_bits(o.to(b.dtype), b) for o, b in zip(own, blocks, strict=True)) else blocks

    def _blocks(self, name: str, kept: torch.Tensor) -> torch.Tensor:
        large = self._sketches and kept.numel() > whole_of(name)
        return kept[: whole_of(name)] if large else kept

    def _fidelity(self, truth: Truth, results: Tensors) -> Fidelity:
        """Of the floating tensors that fp64, eager and this run have alike, and that are not zero."""
        sqnr, cosines = dict[str, float](), list[float]()
        for name, given in results.items():
            eager = truth.eager.get(name)
            exact = truth.exact_of(name) if eager is not None else None
            if family_of(name) not in FAMILIES or exact is None or eager is None or is_exact_kind(eager):
                continue
            if eager.numel() == 0 or wrong_form(name, eager, given):
                continue
            sides = align(
                *(self._blocks(name, side) for side in (exact, eager, given)), reduced=truth.rule.reduced
            )
            if isinstance(sides, str) or math.isnan(quality := sqnr_db(sides.truth, sides.other)):
                continue
            sqnr[name] = quality
            cosines.append(cosine(sides.truth, sides.other))
        lowest = min(sqnr.keys() - {*truth.noise_tensors}, key=lambda name: (sqnr[name], name), default="")
        if not sqnr:
            return Fidelity()
        medians = (_known(statistics.median_low(values)) for values in (sqnr.values(), cosines))
        return Fidelity(*medians, sqnr.get(lowest), lowest)

    def _of_logits(self, results: Tensors, truth: Truth) -> dict[str, Any]:
        name = chosen(self._logits)
        eager, given = truth.eager.get(name), results.get(name)
        if eager is None or given is None or wrong_form(name, eager, given):
            return {}
        ours, theirs = (rows_of(self._rows.get(side, side)) for side in (eager, given))
        return {"logits": name, "logits_rows": len(ours), **logit_figures(ours, theirs)}


def is_logits(name: str, tensor: torch.Tensor, target: object) -> bool:
    """Whether it may be logits: a floating output of rows, called ``logits`` or with one class a row.

    The latter if the target is integers below the last dimension, and its shape begins the output's: the
    classes that a cross entropy would ask for.
    """
    path = name.split(".")
    if path[0] != "output" or not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[-1] < 2:
        return False
    if path[-1] == "logits":
        return True
    if not isinstance(target, torch.Tensor) or not is_exact_kind(target) or target.dtype is torch.bool:
        return False
    begins = 0 < target.dim() < tensor.dim() and target.shape == tensor.shape[: target.dim()]
    return begins and target.numel() > 0 and int(target.max()) < tensor.shape[-1]


def chosen(names: Sequence[str]) -> str:
    """The output that is called ``logits``, or the only one with a class a row; "" if there are several."""
    called = [name for name in names if name.endswith(".logits")] or names
    return called[0] if len(called) == 1 else ""


def rows_of(logits: torch.Tensor) -> torch.Tensor:
    """(rows, classes): all rows, or every n-th, for 2^20 elements at most."""
    rows = logits.detach().flatten(0, -2)
    most = max(1, WHOLE_OUTPUT // rows.shape[-1])
    return rows[:: max(1, -(-len(rows) // most))]


def logit_figures(ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, float | None]:
    """Of logits, (rows, classes): eager's, and another run's. Computed in fp64."""
    log_p, log_q = (rows.double().log_softmax(-1) for rows in (ours, theirs))
    top = log_p.argmax(-1, keepdim=True)
    change = (log_q - log_p).gather(-1, top).abs()
    p = log_p.exp()
    kl = torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p)).sum(-1)
    figures = {
        "top_1": (log_q.argmax(-1, keepdim=True) == top).double().mean(),
        "log_prob_mean": change.mean(),
        "log_prob_largest": change.max(),
        "kl": kl.mean(),
    }
    return {name: _known(float(figure)) for name, figure in figures.items()}


def nearer(candidate_db: float | None, eager_db: float | None) -> str:
    """Which side is nearer to fp64, by its SQNR; "" if that is not known."""
    if candidate_db is None or eager_db is None:
        return ""
    if candidate_db == eager_db or abs(candidate_db - eager_db) <= EQUAL_DB:
        return "equal"
    return "candidate" if candidate_db > eager_db else "eager"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
