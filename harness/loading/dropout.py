"""Dropout that runs but drops nothing, so that the results of two compilers can be compared.

A compiler may draw other random numbers than eager, and both are correct. With a probability of 1e-30 a
dropout does all of its work and drops no element. Suites build their models with this probability; a copy of
any other model is changed here. This file does not import torch, because suites list models without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

KEPT_DROPOUT = 1e-30
"""Replaces every dropout probability: the kernels still run, but drop nothing."""

DROPPING = ("drop", "stochasticdepth")  # if a class's name contains one, its "p" is a probability
SKIPPING = ("layerdrop", "layer_drop")  # set to 0: skipping a layer is control flow that changes the graph
CONFIGS = ("config", "cfg", "args")  # attributes of modules from which forwards read probabilities


def neutralize(module: Any) -> tuple[float, ...]:
    """Sets every dropout probability of ``module`` and its parts to ``KEPT_DROPOUT``, in place.

    Returns the probabilities before the change. It changes attributes of modules and of the configurations
    that modules hold. It cannot change a constant in the code of a forward.
    """
    rates: list[float] = []
    seen: set[int] = set()
    for part in module.modules():
        rates += _of(part)
        for config in _configs(part, seen):
            rates += _of(config)
    return tuple(rates)


def _configs(holder: Any, seen: set[int]) -> Iterator[Any]:
    """The configuration of a module and the configurations inside it, each once."""
    for name in CONFIGS:
        config = _attributes(holder).get(name)
        if config is None or id(config) in seen or not (isinstance(config, dict) or _attributes(config)):
            continue
        seen.add(id(config))
        yield config
        for inner in list(_attributes(config).values()):
            if hasattr(inner, "to_dict") and id(inner) not in seen:
                seen.add(id(inner))
                yield inner


def _attributes(holder: Any) -> dict[str, Any]:
    if isinstance(holder, dict):
        return holder
    attributes = getattr(holder, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}


def _of(holder: Any) -> list[float]:
    drops = any(word in base.__name__.lower() for base in type(holder).__mro__ for word in DROPPING)
    before: list[float] = []
    attributes = _attributes(holder)
    for name, value in list(attributes.items()):
        lower = str(name).lower()
        if "drop" not in lower and not (drops and lower in ("p", "prob")):
            continue
        kept = 0.0 if any(word in lower for word in SKIPPING) else KEPT_DROPOUT
        rates = [value] if isinstance(value, float) else value
        if not isinstance(rates, (list, tuple)):
            continue
        dropping = [rate for rate in rates if _is_rate(rate)]
        if dropping:
            changed = [kept if _is_rate(rate) else rate for rate in rates]
            # not setattr, which frozen classes and modules restrict
            attributes[name] = changed[0] if isinstance(value, float) else type(value)(changed)
            before += dropping
    return before


def _is_rate(value: object) -> bool:
    return isinstance(value, float) and KEPT_DROPOUT < value < 1.0
