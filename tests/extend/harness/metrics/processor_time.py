"""``processor_s``: processor time of one step, of all threads. On a GPU: the host's cost of launching."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.declared import CANDIDATE, SIDES, Average, Column, Metric
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "step"
METRICS = (
    Metric(
        "processor_s",
        "s",
        "processor time of one step, of all threads",
        sides=SIDES,
        columns=(Column("processor\ns", CANDIDATE),),
    ),
    Metric(
        "processor_ratio",
        "ratio",
        "eager's processor time / the candidate's",
        derive=lambda seen: seen.eager_over_candidate("processor_s"),
        average=Average(heading="processor ratio", key="processor"),
    ),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = time.process_time()
    yield
    numbers["processor_s"] = time.process_time() - before
