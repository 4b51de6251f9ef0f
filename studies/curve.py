"""A point of a training's curve: apart from ``fitting``, so that reports need no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a training stands. ``seconds`` are of its steps alone: evaluations do not count.

    ``train_loss`` is the mean over the batches since the last point (dropout on, as trained).
    """

    step: int
    seconds: float
    train_loss: float
    test_loss: float
    test_accuracy: float
