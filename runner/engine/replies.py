"""What a worker answers. A model can write anything to its pipe, so the shape of a reply is checked here."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from harness.schema import Course, Failure, ModelFacts, Numerics, Parity, Round, Scalar, Status, TensorError
from runner.names import reason
from runner.store.record_file import whole_number

LONGEST_LINE = 16 << 20  # bytes; a batch of rounds takes some thousands
INVALID = "invalid reply"  # the kind of the failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    model: ModelFacts
    environment: dict[str, Scalar]
    controls: tuple[Numerics, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The reply to ``prepare`` and to ``cross_parity``."""

    status: Status
    parity: Parity | None
    notes: tuple[str, ...]
    metrics: dict[str, Scalar] = field(default_factory=dict)
    first_calls_s: tuple[float, ...] = ()
    numerics: Numerics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmedUp:
    metrics: dict[str, Scalar]
    first_calls_s: dict[str, tuple[float, ...]] = field(default_factory=dict)
    compilation_latency_s: dict[str, Scalar] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Measured:
    """Rounds, the number of graphs that each variant compiled during them, and the latest reason."""

    rounds: tuple[Round, ...]
    recompiled: dict[str, int]
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, later: Measured) -> None:
        self.rounds += later.rounds
        self.recompiled |= later.recompiled
        self.reasons |= later.reasons

    def check(self, variants: set[str]) -> None:
        """``ValueError`` unless every round has a finite time above 0 for each of these variants."""
        for timed in self.rounds:
            if not (variants <= set(timed.order) and variants <= timed.minor_faults.keys()):
                raise ValueError("a round lacks a variant")
            if not all(0 < timed.seconds.get(variant, 0.0) < math.inf for variant in variants):
                raise ValueError("a round lacks a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The reply to ``finish`` and to ``conclude``."""

    metrics: dict[str, dict[str, Scalar]]
    changed: dict[str, TensorError] = field(default_factory=dict)
    late_failures: dict[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The reply to ``trajectory``: one run, and what all runs of the job share."""

    course: Course
    places: tuple[int, ...]
    resolution: float
    batches: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The reply to a call that raised. ``broken``: the device no longer works, and the worker ends."""

    status: Status
    failure: Failure
    broken: bool = False


def parsed(line: bytes) -> dict[str, Any]:
    """The JSON object of this line. Raises ``ValueError``, also for NaN, which no worker writes."""
    try:
        reply = json.loads(line, parse_constant=_refused, parse_int=whole_number)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(reply, dict) or not reply.keys() & {"ok", "failed"}:
        raise ValueError("it is not a reply")
    return reply


def invalid(error: Exception, phase: str) -> Failure:
    """The failure of a worker that wrote what is no reply."""
    return Failure(kind=INVALID, message=f"the worker's reply cannot be used: {reason(error)}", phase=phase)


def _refused(constant: str) -> float:
    raise ValueError(f"it has the number {constant}")
