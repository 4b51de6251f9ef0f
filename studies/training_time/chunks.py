"""Trains variants in alternation: a chunk of steps each, in random order, so that times are paired."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runner.errors import words_of

FIRST_STEPS = 8
"""The first steps are a chunk of their own, because they include compilation (TorchScript: three calls)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Steps ``first`` to ``first + steps - 1``. ``evaluate``: evaluate after the last step."""

    first: int
    steps: int
    evaluate: bool

    @property
    def last(self) -> int:
        return self.first + self.steps - 1


class Learner(Protocol):
    """One variant in training, with its own model, optimizer and position in the data."""

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Compiles, if the variant has a compiler. May raise any exception of the compiler."""

    def run(self, first: int, steps: int) -> Sequence[float]:
        """Runs these steps and synchronizes the device. Returns the loss of each step."""

    def evaluate(self) -> tuple[float, float]:
        """The mean loss on fixed windows of the training text and of the held-out text, in nats."""

    def close(self) -> None: ...


def plan_chunks(steps: int, size: int, every: int) -> list[Chunk]:
    """Chunks of at most ``size`` steps. Steps 0, ``every``, 2 ``every``, ... and the last are evaluated."""
    evaluated = {*range(0, steps, every), steps - 1}
    cuts = {number + 1 for number in evaluated} | {min(FIRST_STEPS, steps)}
    chunks: list[Chunk] = []
    first = 0
    for cut in sorted(cuts):
        while first < cut:
            length = min(size, cut - first)
            last = first + length - 1
            chunks.append(Chunk(first=first, steps=length, evaluate=last in evaluated))
            first += length
    return chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A chunk that one variant finished. ``seconds`` is the time of the steps, without the evaluation."""

    name: str
    chunk: Chunk
    seconds: float
    losses: tuple[float, ...]
    evaluation: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A variant failed; the others continue. ``phase``: "prepare" or "run"."""

    name: str
    phase: str
    message: str


Happened = Prepared | Done | Failed


def alternate(
    learners: Sequence[Learner],
    chunks: Sequence[Chunk],
    order: random.Random,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Happened]:
    """Trains all variants, chunk by chunk, each chunk in a new random order. Yields the events."""
    alive: list[Learner] = []
    for learner in learners:
        began = clock()
        try:
            learner.prepare()
        except Exception as error:  # a compiler may raise anything; the others continue
            yield Failed(name=learner.name, phase="prepare", message=words_of(error))
            continue
        alive.append(learner)
        yield Prepared(name=learner.name, seconds=clock() - began)
    for chunk in chunks:
        for learner in order.sample(alive, len(alive)):
            event = _one(learner, chunk, clock)
            if isinstance(event, Failed):
                alive.remove(learner)
            yield event


def _one(learner: Learner, chunk: Chunk, clock: Callable[[], float]) -> Done | Failed:
    try:
        began = clock()
        losses = learner.run(chunk.first, chunk.steps)
        seconds = clock() - began
        evaluation = learner.evaluate() if chunk.evaluate else None
    except Exception as error:  # compiled code may fail at any step; the others continue
        return Failed(name=learner.name, phase="run", message=words_of(error))
    if not all(loss - loss == 0 for loss in losses):
        return Failed(name=learner.name, phase="run", message="the loss is not finite")
    return Done(name=learner.name, chunk=chunk, seconds=seconds, losses=tuple(losses), evaluation=evaluation)


def facts_of(event: Happened) -> dict[str, Any]:
    """The fields of the event's line in the journal."""
    if isinstance(event, Prepared):
        return {"variant": event.name, "prepare_s": event.seconds}
    if isinstance(event, Failed):
        return {"variant": event.name, "status": f"FAIL_{event.phase.upper()}", "message": event.message}
    train, valid = event.evaluation or (None, None)
    return {
        "variant": event.name,
        "first": event.chunk.first,
        "steps": event.chunk.steps,
        "seconds": event.seconds,
        "losses": list(event.losses),
        "train": train,
        "valid": valid,
    }
