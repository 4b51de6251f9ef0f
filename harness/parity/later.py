"""What a process in which a candidate has passed leaves for later ones, which check less (``--processes``).

It leaves the errors of eager and of its noisy runs, which make the limits, and a digest of each result of
the candidate's first calls. A later process has no fp64, no noisy eager and no other data. There, each result
must have the same bits again, or be nearer to eager than its limit. (The error against fp64 is at most that
distance and eager's own error: below twice the limit.) Whatever is not clearly so is checked in full.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.parity.measure import Error, digest
from harness.parity.rule import Truth
from harness.tensors import Tensors

SAME_SIZE = 0.01  # share by which the size of eager's tensor may differ from that in the first process


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Of the tensors of eager's first call, and of a candidate that has passed.

    ``sizes``: of the truth and of eager, and the number of elements. ``draws``: the errors of eager and its
    noisy runs, as shares of the size. ``digests``: of the candidate's results, call by call.
    """

    sizes: Mapping[str, tuple[float, float, int]]
    draws: Mapping[str, Sequence[Error]]
    digests: Sequence[Mapping[str, tuple[int, ...]]]

    @classmethod
    def of(cls, truth: Truth, calls: Sequence[Tensors]) -> Handed:
        eager = Truth.of(truth.rule, None, truth.eager).scales
        return cls(
            sizes={
                name: (size, eager.get(name, math.nan), truth.eager[name].numel())
                for name, size in truth.scales.items()
            },
            draws={name: truth.draws(name) for name in truth.scales},
            digests=[{name: digest(tensor) for name, tensor in results.items()} for results in calls],
        )

    @classmethod
    def read(cls, path: Path | None) -> Handed | None:
        """None if there is no such file, or a damaged one."""
        try:
            file = json.loads("" if path is None else path.read_text(encoding="utf-8"))
            return cls(
                sizes={name: (truth, eager, count) for name, (truth, eager, count) in file["sizes"].items()},
                draws={name: [Error(**draw) for draw in draws] for name, draws in file["draws"].items()},
                digests=[{n: tuple(bits) for n, bits in call.items()} for call in file["digests"]],
            )
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return None

    def write(self, path: Path) -> None:
        """If the disk does not take the file, later processes check in full."""
        try:
            path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        except OSError as error:
            print(f"nothing is kept for later processes: {error}", flush=True)

    def limits(self, truths: Sequence[Truth]) -> list[Truth]:
        """``truths`` (of eager alone, call by call) with the errors of the first process.

        Empty, if eager has other tensors here than there, or of another size.
        """
        first = truths[0]
        if any(truth.scales.keys() != self.sizes.keys() for truth in truths) or not all(
            first.eager[name].numel() == count and math.isclose(first.scales[name], eager, rel_tol=SAME_SIZE)
            for name, (_, eager, count) in self.sizes.items()
        ):
            return []
        sizes = {name: size for name, (size, _, _) in self.sizes.items()}
        own = {name: draws[0] for name, draws in self.draws.items()}
        noise = {name: draws[1:] for name, draws in self.draws.items()}
        return [replace(truth, scales=sizes, own=own, noise=noise) for truth in truths]

    def same(self, call: int, results: Tensors) -> frozenset[str]:
        """The results of this call (from 1) that have the bits of the first process."""
        digests = self.digests[call - 1] if call <= len(self.digests) else {}
        return frozenset(
            name for name, t in results.items() if name in digests and digest(t) == digests[name]
        )
