"""Trains a model until it reaches an accuracy or its time budget ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from harness.devices import of
from studies.implementations.results import Point
from studies.implementations.tasks import Task

WEIGHT_DECAY = 1e-4
WAITS_EVERY = 10  # steps between synchronizations, because GPU kernels run asynchronously


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When to evaluate and when to stop. ``every`` is in steps."""

    budget_s: float
    every: int
    stop_above: float | None  # accuracy that ends the training; None: only the budget ends it


def fit(
    model: torch.nn.Module,
    task: Task,
    rule: Rule,
    *,
    learning_rate: float,
    batch: int,
    seed: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Point]:
    """Trains with AdamW. Yields a point after the first step, every ``rule.every`` steps, and at the end."""
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    step, seconds = 0, 0.0
    recent: list[torch.Tensor] = []
    began = clock()
    while True:
        inputs, targets = (part.to(device) for part in task.draw(batch, generator))
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
        if over or (rule.stop_above is not None and accuracy > rule.stop_above):
            return
        began = clock()
