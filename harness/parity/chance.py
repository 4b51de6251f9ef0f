"""Random numbers in a step: the generators it uses, the calls that draw, and the tensors that depend on them.

A compiler may draw other random numbers than eager from the same seed, and both are correct. If a candidate
fails, eager therefore runs again with other seeds. If another seed changes every failing tensor in eager,
too, chance explains the failure, and the candidate cannot be judged. A failing tensor that no seed changes
remains a failure.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.devices import of
from harness.parity.measure import same_bits
from harness.timing.modes import Operations

if TYPE_CHECKING:
    from harness.parity.checks import Checks

SEEDS = 3
SHOWN = 4  # operations in a sentence


@contextmanager
def watching_generators(
    device: torch.device, drawn: list[str], inside: AbstractContextManager[Any]
) -> Iterator[None]:
    """``inside``; adds to ``drawn`` the names of the generators that the code in it uses."""
    before = _states(device)
    with inside:
        yield
    after = _states(device)
    drawn += [name for name, state in after.items() if name in before and before[name] != state]


def _states(device: torch.device) -> dict[str, Any]:
    states: dict[str, Any] = {"torch's CPU generator": torch.get_rng_state().tolist()}
    of_device = of(device).generator_state()
    if of_device is not None:
        states["the device's generator"] = of_device.tolist()
    states["Python's random"] = random.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, *rest = numpy.random.get_state()
        states["numpy.random"] = (kind, key.tobytes(), *rest)
    return states


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Names of the tensors of eager that depend on the seed; empty if eager draws no random numbers.

    ``draws``: the operations that draw, as words. ``unlike``: the tensors whose form changes, too: shapes,
    places of NaN and infinities.
    """

    draws: str = ""
    changed: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()

    @classmethod
    def of(cls, checks: Checks) -> Chance:
        """Runs eager with a few other seeds, if it has drawn random numbers."""
        if not checks.drawn:
            return cls()
        eager, bench, operations = checks.truth.eager, checks.bench, _Drawing()
        changed, unlike = set[str](), {name for name, tensor in eager.items() if not _finite(tensor)}
        for number in range(1, SEEDS + 1):
            results = bench.run(bench.variant(), operations if number == 1 else None, other_seed=number)
            for name in {*eager, *results}:
                first, other = eager.get(name), results.get(name)
                if first is None or other is None or (first.shape, first.dtype) != (other.shape, other.dtype):
                    changed.add(name)
                    unlike.add(name)
                elif checks.spread.get(name, 0.0) == 0.0 and not same_bits(first, other):
                    changed.add(name)
                if other is not None and not _finite(other):
                    unlike.add(name)
        draws = ", ".join([*operations.names][:SHOWN] or checks.drawn)
        return cls(draws=draws, changed=frozenset(changed), unlike=frozenset(unlike & changed))

    def explains(self, beyond: AbstractSet[str], of_wrong_form: AbstractSet[str]) -> bool:
        """Whether another seed changes all these tensors in the same way."""
        return bool(self.changed) and beyond <= self.changed and of_wrong_form <= self.unlike


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


class _Drawing(Operations):
    """Notes the operations that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.names[func.overloadpacket.__name__] = None
        return func(*args, **kwargs)
