"""The numerics card (``--numerics``): how far a candidate's first call is from eager's, and from fp64.

It looks at the outputs, the loss and the gradients of calls that the check of parity makes anyway. Of a large
tensor it sees the blocks of parity's sketch. ``docs/NUMERICS.md`` has the definitions with their sources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from harness.devices import of
from harness.failures import line_of, log_traceback
from harness.numerics.figures import Distance, cosine, distance, quantiles, sqnr_db
from harness.parity.checks import Checks
from harness.parity.measure import WHOLE_OUTPUT, align, family_of, is_exact_kind, same_bits, sketch, whole_of
from harness.parity.rule import Truth, wrong_form
from harness.schema import Numerics
from harness.tensors import Tensors
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

FAMILIES = ("value", "gradient")
EQUAL_DB = 1.0  # within it neither of two runs is nearer to fp64
Fidelity = tuple[float | None, float | None]
"""SQNR and cosine against fp64, medians of the tensors. None: not defined."""


class Cards:
    """Of one job. It sees each result before parity sketches it: ``bench.take`` goes through it.

    First ``open`` is called, then ``card`` for each candidate. ``notes``: why cards are missing.
    """

    def __init__(self, bench: Workbench) -> None:
        self.controls: tuple[Numerics, ...] = ()
        self.notes = list[str]()
        self._bench = bench
        self._sketches = bench.take is sketch
        self._take, bench.take = bench.take, self._keep
        self._seen = dict[str, tuple[int, torch.dtype]]()  # of each tensor: its elements and type in eager
        self._logits = list[str]()  # outputs that may be logits
        # rows of these, by what is kept of them
        self._rows: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()
        self._beside: tuple[Fidelity, Fidelity] = ((None, None), (None, None))  # of eager, noisy eager

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
        self._beside = self._fidelity(truth, truth.eager), self._fidelity(truth, noisy)
        other = torch.get_num_threads() // 2 or 2
        runs: dict[str, Callable[[], Tensors]] = {"eager again": lambda: second}
        if not of(self._bench.device).accelerated:
            name = f"eager, {other} thread{'' if other == 1 else 's'}"
            runs[name] = partial(self._with_threads, other, eager)
        runs |= {"noisy eager": lambda: noisy} if noisy else {}
        self.controls = tuple(filter(None, (self.card(name, run, truth) for name, run in runs.items())))

    def _with_threads(self, number: int, eager: Variant) -> Tensors:
        before = torch.get_num_threads()
        torch.set_num_threads(number)
        try:
            return self._bench.run(eager)
        finally:
            torch.set_num_threads(before)

    def card(self, name: str, run: Callable[[], Tensors], truth: Truth) -> Numerics | None:
        """The card of a first call. None, with a note, if that fails, which costs no verdict.

        ``truth``: of parity, on the same call.
        """
        try:
            return self._card(name, run(), truth)
        except Exception as error:
            log_traceback()
            self.notes.append(f"no numerics card of {name}: {line_of(error)}")
            return None

    def _card(self, run: str, results: Tensors, truth: Truth) -> Numerics:
        off, other = dict[str, Distance](), dict[str, int]()  # elements of tensors in another form
        for name in dict.fromkeys((*truth.eager, *results)):
            eager, given = truth.eager.get(name), results.get(name)
            if family_of(name) not in FAMILIES:
                continue
            if wrong_form(name, eager, given):
                other[name] = next(t.numel() for t in (eager, given) if t is not None)
            elif eager is not None:  # else a gradient of zeros, which may also be left out
                pair = self._alike(name, eager, torch.zeros_like(eager) if given is None else given)
                off[name] = distance(*pair)
        ulp = {name: each.ulp.cpu() for name, each in off.items() if each.ulp.numel()}
        largest = {name: float(each.max()) for name, each in ulp.items()}
        furthest = max(largest, key=lambda name: largest[name], default="")
        half, most = (_known(value) for value in quantiles(ulp.values(), (0.5, 0.99)))
        (sqnr, angle), (eager_sqnr, eager_angle), (noisy_sqnr, noisy_angle) = (
            *(self._fidelity(truth, results),),
            *self._beside,
        )
        return Numerics(
            run=run,
            elements=sum(each.elements for each in off.values()) + sum(other.values()),
            elements_of=sum(self._seen[name][0] for name in (*off, *other)),
            elements_equal=sum(each.equal for each in off.values()),
            tensors=len(off) + len(other),
            tensors_equal=sum(each.bit_equal for each in off.values()),
            integers=sum(each.elements for name, each in off.items() if is_exact_kind(truth.eager[name])),
            undefined=sum(each.undefined for each in off.values()) + sum(other.values()),
            ulp_median=half,
            ulp_99=most,
            ulp_largest=largest.get(furthest),
            ulp_largest_in=furthest if largest.get(furthest) else "",
            sqnr_db=sqnr,
            eager_sqnr_db=eager_sqnr,
            noisy_sqnr_db=noisy_sqnr,
            cosine=angle,
            eager_cosine=eager_angle,
            noisy_cosine=noisy_angle,
            nearer=nearer(sqnr, eager_sqnr),
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
        both = list[tuple[float, float]]()
        for name, given in results.items():
            eager = truth.eager.get(name)
            if eager is None or family_of(name) not in FAMILIES or is_exact_kind(eager):
                continue
            exact = truth.exact_of(name)
            if exact is None or eager.numel() == 0 or wrong_form(name, eager, given):
                continue
            seen = (self._blocks(name, side) for side in (exact, eager, given))
            sides = align(*seen, reduced=truth.rule.reduced)
            if not isinstance(sides, str) and not math.isnan(sqnr := sqnr_db(sides.truth, sides.other)):
                both.append((sqnr, cosine(sides.truth, sides.other)))
        if not both:
            return None, None
        sqnr, angle = (statistics.median_low(values) for values in zip(*both, strict=True))
        return sqnr, _known(angle)

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
