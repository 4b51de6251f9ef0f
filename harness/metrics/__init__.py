"""Metrics, one module each, found by file name.

A module says ``WHEN`` it observes and offers a context manager
``observe(device, numbers)`` that adds named numbers, units in their names:

- ``"compile"``: round a candidate's compilation and first calls;
- ``"step"``: round one extra, untimed step of every variant after the timed
  rounds; its numbers get the variant's side (``baseline_``/``candidate_``) in front.

Metrics are never on during timed samples.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

Observe = Callable[["torch.device", dict[str, Scalar]], AbstractContextManager[None]]


def metric_names() -> tuple[str, ...]:
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")))


@contextmanager
def observing(when: str, device: torch.device) -> Iterator[dict[str, Scalar]]:
    """Every metric of that kind at once; the dict yielded is full when the context ends."""
    numbers: dict[str, Scalar] = {}
    with ExitStack() as stack:
        for name in metric_names():
            module = importlib.import_module(f"{__name__}.{name}")
            if when == module.WHEN:
                stack.enter_context(cast("Observe", module.observe)(device, numbers))
        yield numbers
