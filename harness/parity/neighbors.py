"""Neighbors of some data: what eager, noisy eager and a candidate compute where other values are at kinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.failures import line_of
from harness.parity.calls import check_device, noisy_runs, on_data
from harness.parity.data.other_data import Data, placed
from harness.parity.directions import Directions
from harness.parity.measure import Error
from harness.parity.rule import NEIGHBORS, WORSE, Judgment, Ranked, Rule, Truth, judge
from harness.tensors import Tensors
from harness.timing.step import Variant
from harness.timing.workbench import TOKENS, Workbench


class Neighbors:
    """The truths on the neighbors of one data, made for the first candidate that needs them."""

    def __init__(
        self,
        bench: Workbench,
        rule: Rule,
        data: Sequence[Data],
        pair: list[Variant],
        directions: Directions | None,
        coarseness: float,
    ) -> None:
        """``data``: the neighbors. ``pair``: empty, or eager and fp64, which all neighbors share.

        ``coarseness``: how many times louder noise is there.
        """
        self._bench = bench
        self._rule = rule
        self._data = data
        self._pair = pair
        self._directions = directions
        self._coarseness = coarseness
        self._truths: list[Truth] = []

    def truth(self, number: int) -> Truth:
        bench = self._bench
        if not self._pair:
            self._pair += [bench.variant(), bench.variant(exact=True)]
        while len(self._truths) <= number:
            data = self._data[len(self._truths)]
            eager, exact = self._pair
            found: Tensors | None = None
            try:
                found = on_data(bench, exact, data)
                found = {name: tensor for name, tensor in found.items() if name != TOKENS}
            except Exception as error:  # eager is then the truth
                check_device(bench, error)
                print(f"no fp64 run on a neighbor: {line_of(error)}", flush=True)
            eager.restore()
            with placed(eager, data):
                noisy = noisy_runs(bench, eager, data.neighbor, self._coarseness)
                plain = bench.run(eager, restored=False)
            eager.restore()
            truth = Truth.of(self._rule, found, plain, noisy)
            self._truths.append(truth.with_slopes(self._directions, noisy))
        return self._truths[number]

    def ranked(self, variant: Variant, truth: Truth, suspects: Mapping[str, Judgment]) -> dict[str, Ranked]:
        """Each suspect among noisy eager, on the data (``truth``) and its neighbors.

        A suspect that is within its limits on a neighbor is looked at no more.
        """
        ranks = {
            name: Ranked(self._rule, name, judgment.beyond, [judgment.error], list(_noise(truth, name)))
            for name, judgment in suspects.items()
        }
        for number in range(NEIGHBORS):
            waiting = [rank for rank in ranks.values() if rank.figures]
            if not waiting:
                break
            near = self.truth(number)
            results = on_data(self._bench, variant, self._data[number])
            slopes = near.slopes_of(self._directions, results)
            for rank in waiting:
                if rank.name in near.eager:
                    judgment = judge(near, rank.name, results.get(rank.name), 0)
                    rank.add(WORSE if judgment.form else judgment.error, _noise(near, rank.name))
                elif rank.name in slopes:
                    rank.add(Error(slope=slopes[rank.name]), _noise(near, rank.name))
        return ranks


def _noise(truth: Truth, name: str) -> list[Error]:
    return [*truth.noise.get(name, ()), *(Error(slope=slope) for slope in truth.slopes.get(name, ())[1:])]
