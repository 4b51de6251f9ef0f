"""Trains variants in alternation: a chunk of steps each, in random order, so that times are paired."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from runner.errors import words_of
from studies.journal import PASS

FIRST_STEPS = 8
"""The first steps are a chunk of their own, because they include compilation (TorchScript: three calls)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Steps ``first`` to ``first + steps - 1``. ``evaluate``: evaluate after the last step."""

    first: int
    steps: int
    evaluate: bool


class Learner(Protocol):
    """One variant in training, with its own model, optimizer and position in the data.

    ``prepare`` compiles, and may raise what a compiler raises. ``run`` waits for the device, and returns the
    loss of each step. ``evaluate``: mean loss on the training text and on the held-out text, in nats.
    """

    name: str

    def prepare(self) -> None: ...
    def run(self, first: int, steps: int) -> Sequence[float]: ...
    def evaluate(self) -> tuple[float, float]: ...


def plan_chunks(steps: int, size: int, every: int) -> list[Chunk]:
    """Chunks of at most ``size`` steps. Steps 0, ``every``, 2 ``every``, ... and the last are evaluated."""
    evaluated = {*range(0, steps, every), steps - 1}
    cuts = {number + 1 for number in evaluated} | {min(FIRST_STEPS, steps)}
    return [
        Chunk(first=first, steps=min(size, end - first), evaluate=min(first + size, end) - 1 in evaluated)
        for begin, end in pairwise((0, *sorted(cuts)))
        for first in range(begin, end, size)
    ]


def alternate(
    learners: Sequence[Learner],
    chunks: Sequence[Chunk],
    order: random.Random,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Prepares all variants, then trains them chunk by chunk, each chunk in a new random order.

    Yields the kind and the fields of lines of the journal: "prepared", "chunk", and an "outcome" of every
    variant. A variant that fails costs only itself.
    """
    alive = [*learners]
    for chunk in (None, *chunks):
        for learner in order.sample(alive, len(alive)) if chunk else [*alive]:
            try:
                facts = _trained(learner, chunk, clock)
            except Exception as error:  # compiled code may fail at any step; the others continue
                alive.remove(learner)
                facts = {"status": "FAIL_RUN" if chunk else "FAIL_PREPARE", "message": words_of(error)}
                yield "outcome", {"variant": learner.name, **facts}
            else:
                yield "chunk" if chunk else "prepared", {"variant": learner.name, **facts}
    for learner in alive:
        yield "outcome", {"variant": learner.name, "status": PASS, "message": None}


def _trained(learner: Learner, chunk: Chunk | None, clock: Callable[[], float]) -> dict[str, Any]:
    """Without a chunk, the learner is prepared. ``seconds``: of the steps, without the evaluation."""
    began = clock()
    if chunk is None:
        learner.prepare()
        return {"prepare_s": clock() - began}
    losses = [*learner.run(chunk.first, chunk.steps)]
    facts = {"first": chunk.first, "steps": chunk.steps, "seconds": clock() - began, "losses": losses}
    if not all(loss - loss == 0 for loss in losses):
        raise FloatingPointError("the loss is not finite")
    train, valid = learner.evaluate() if chunk.evaluate else (None, None)
    return {**facts, "train": train, "valid": valid}
