"""The two tasks of study B: batches for training, held-out examples, and the training itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.devices import of
from studies.corpus import Corpus, windows
from studies.implementations.addition import additions
from studies.implementations.results import Point
from suites.models.next_symbol import every_symbol_loss, last_symbol_loss

Batch = tuple[Tensor, Tensor]
EVALUATED_AT_ONCE = 2048  # inputs
WEIGHT_DECAY = 1e-4
WAITS_EVERY = 10  # steps between synchronizations, because GPU kernels run asynchronously
TEXT_POSITIONS = 16_384  # evaluated windows of the held-out text for models that predict one symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``draw(size, generator)`` returns a batch of the training part; ``test`` is held out.

    ``last_only``: the model predicts only the symbol after the last position, not after every position.
    """

    draw: Callable[[int, torch.Generator], Batch]
    test: Batch
    last_only: bool

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return last_symbol_loss(logits, target) if self.last_only else every_symbol_loss(logits, target)

    def right(self, logits: Tensor, target: Tensor) -> Tensor:
        """Where the most likely symbol equals the target: booleans in the shape of the target."""
        chosen = logits.argmax(-1)
        return (chosen[:, -1] if self.last_only else chosen) == target

    def evaluate(self, model: torch.nn.Module, device: torch.device) -> tuple[float, float]:
        """Mean loss and accuracy by symbol on the held-out examples."""
        total, right = 0.0, 0
        for inputs, targets in zip(
            *(torch.split(part, EVALUATED_AT_ONCE) for part in self.test), strict=True
        ):
            on_device = targets.to(device)
            logits = model(inputs.to(device))
            total += float(self.loss(logits, on_device)) * targets.numel()
            right += int(self.right(logits, on_device).sum())
        count = self.test[1].numel()
        return total / count, right / count


def addition_task(*, device: torch.device | str = "cpu", **questions: Any) -> Task:
    """The ``questions`` of ``additions``. All examples lie on the device, as in the source."""
    (inputs, targets), test = (tuple(t.to(device) for t in part) for part in additions(**questions))

    def draw(size: int, generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(targets), (size,), generator=generator).to(device)
        return inputs[chosen], targets[chosen]

    return Task(draw=draw, test=(test[0], test[1]), last_only=True)


def text_task(corpus: Corpus, *, block: int, last_only: bool) -> Task:
    """Windows of ``block`` characters. Held out: adjacent windows or, for ``last_only``, a random sample."""
    tokens = torch.tensor(corpus.encoded())
    begin, end = corpus.training_length, len(tokens) - block

    def cut(starts: Tensor) -> Batch:
        inputs, targets = windows(tokens, starts, block)
        return inputs, targets[:, -1].contiguous() if last_only else targets

    def draw(size: int, generator: torch.Generator) -> Batch:
        return cut(torch.randint(begin - block, (size,), generator=generator))

    starts = torch.arange(begin, end, block)
    if last_only:
        fixed = torch.Generator().manual_seed(0)
        starts = begin + torch.randperm(end - begin, generator=fixed)[:TEXT_POSITIONS]
    return Task(draw=draw, test=cut(starts), last_only=last_only)


@dataclass(frozen=True, slots=True)
class Rule:
    """How to train, when to evaluate and when to stop. ``every`` is in steps."""

    learning_rate: float
    batch: int
    budget_s: float
    every: int
    stop_above: float = math.inf  # accuracy that ends the training


def fit(
    model: torch.nn.Module,
    task: Task,
    rule: Rule,
    seed: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Point]:
    """Trains with AdamW. Yields a point after the first step, every ``rule.every`` steps, and at the end."""
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.learning_rate, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    step, seconds = 0, 0.0
    recent: list[torch.Tensor] = []
    began = clock()
    while True:
        inputs, targets = (part.to(device) for part in task.draw(rule.batch, generator))
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs)
        loss = task.loss(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        recent.append(loss.detach())
        step += 1
        if step % WAITS_EVERY == 0:
            of(device).synchronize()
        over = seconds + clock() - began >= rule.budget_s
        if not over and step % rule.every and step != 1:
            continue
        train_loss = float(torch.stack(recent).mean())  # waits for the device
        seconds += clock() - began
        recent.clear()
        train_accuracy = float(task.right(logits.detach(), targets).float().mean())
        began = clock()
        with torch.no_grad():
            test_loss, accuracy = task.evaluate(model.eval(), device)
        inference_s = clock() - began
        model.train()
        yield Point(
            step=step,
            seconds=seconds,
            train_loss=train_loss,
            test_loss=test_loss,
            test_accuracy=accuracy,
            train_accuracy=train_accuracy,
            inference_micros=1e6 * inference_s / len(task.test[1]),
        )
        if train_loss - train_loss != 0:
            raise FloatingPointError("the loss is not finite")
        if over or accuracy > rule.stop_above:
            return
        began = clock()
