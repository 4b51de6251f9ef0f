"""Random numbers in a step: the generators it uses, the calls that draw, and the tensors that depend on them.

A compiler may draw other random numbers than eager from the same seed, and both are correct. If a candidate
fails, eager therefore runs again with other seeds. If another seed changes every failing tensor in eager,
too, chance explains the failure, and the candidate cannot be judged. A failing tensor that no seed changes
remains a failure.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.devices import of
from harness.loading.dropout import KEPT_DROPOUT
from harness.parity.measure import same_bits
from harness.tensors import Tensors

SEEDS = 3
SHOWN = 4  # calls in a sentence
DRAWING = (
    *(
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "bernoulli",
        "normal",
    ),
    *("multinomial", "poisson", "rrelu", "rrelu_", "normal_", "uniform_", "random_", "bernoulli_", "cauchy_"),
    *("exponential_", "geometric_", "log_normal_", "binomial", "gumbel_softmax", "fractional_max_pool2d"),
)


@contextmanager
def watching_generators(device: torch.device, drawn: list[str]) -> Iterator[None]:
    """Adds to ``drawn`` the names of the generators that the code inside uses."""
    before = _states(device)
    yield
    after = _states(device)
    drawn += [name for name, state in after.items() if name in before and not _same(before[name], state)]


def _states(device: torch.device) -> dict[str, Any]:
    states: dict[str, Any] = {"torch's CPU generator": torch.get_rng_state()}
    of_device = of(device).generator_state()
    if of_device is not None:
        states["the device's generator"] = of_device
    states["Python's random"] = random.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, *rest = numpy.random.get_state()
        states["numpy.random"] = (kind, key.tobytes(), *rest)
    return states


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Names of the tensors of eager that depend on the seed; empty if eager draws no random numbers."""

    draws: str = ""  # the calls that draw random numbers, as words
    changed: frozenset[str] = frozenset()
    unlike: frozenset[str] = (
        frozenset()
    )  # of these, the form changes, too: shapes, places of NaN and infinities

    def explains(self, beyond: AbstractSet[str], of_wrong_form: AbstractSet[str]) -> bool:
        """Whether another seed changes all these tensors in the same way."""
        return beyond <= self.changed and of_wrong_form <= self.unlike


def chance_of(
    eager: Tensors,
    spread: Mapping[str, float],
    drawn: Sequence[str],
    run: Callable[[int], Tensors],
    watched: Callable[[Any], object],
) -> Chance:
    """The tensors that depend on the random numbers that eager has ``drawn`` from these generators.

    ``spread``: distances of two runs of eager with the same seed. ``run(n)`` is an eager step with the n-th
    other seed, ``watched(context)`` an eager step inside the context.
    """
    if not drawn:
        return Chance()
    changed: set[str] = set()
    unlike = {name for name, tensor in eager.items() if not _finite(tensor)}
    for number in range(SEEDS):
        results = run(number)
        for name in {*eager, *results}:
            one, other = eager.get(name), results.get(name)
            if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
                changed.add(name)
                unlike.add(name)
            elif spread.get(name, 0.0) == 0.0 and not same_bits(one, other):
                changed.add(name)
            if other is not None and not _finite(other):
                unlike.add(name)
    if not changed:
        return Chance()
    calls = _Calls()
    watched(calls)
    draws = calls.words() or ", ".join(drawn)
    return Chance(draws=draws, changed=frozenset(changed), unlike=frozenset(unlike & changed))


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


class _Calls(TorchFunctionMode):
    """Notes the calls that draw random numbers. Dropouts are noted with their probability."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if "dropout" in name or name == "scaled_dot_product_attention":
            place = 4 if name == "scaled_dot_product_attention" else 1
            default = 0.0 if place > 1 else 0.5
            given = kwargs.get("p", kwargs.get("dropout_p", args[place] if len(args) > place else default))
            on = kwargs.get(
                "training", kwargs.get("train", args[2] if place == 1 and len(args) > 2 else True)
            )
            if on and isinstance(given, (int, float)) and given > KEPT_DROPOUT:
                self._found[f"{name}(p={given:g})"] = None
        elif name in DRAWING:
            self._found[name] = None
        return func(*args, **kwargs)

    def words(self) -> str:
        names = list(self._found)
        more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
        return ", ".join(names[:SHOWN] + more)
