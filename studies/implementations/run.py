"""Study B: four implementations of a small language model, on addition and on Shakespeare."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.devices import of
from runner.errors import UsageError, words_of
from studies.corpus import Corpus, seeded_model, shakespeare, synthetic, windows
from studies.implementations.addition import additions, input_length
from studies.implementations.report import SOLVED, place
from studies.journal import PASS, Journal, Line, say
from studies.options import ImplementationsOptions
from suites.models.entries import Entry
from suites.models.next_symbol import every_symbol_loss, last_symbol_loss
from suites.tiny_gpt import entries

EVERY, EVERY_MLP = 50, 500
EVERY_TEXT_MLP = {"MLP_shakespeare_16x256": 200, "MLP_shakespeare_8x128": 200, "MLP_shakespeare_16x64": 25}
TEXT_RATE = 1e-2  # of the MLPs, which have the published batch size on every device
DOUBLE = "MLP_shakespeare_16x64"
"""The third MLP, which the study trained twice as long as the others."""
NOT_PUBLISHED = "HuggingFaceGPT_shakespeare_64"
CPU_SHARE = 32  # on a CPU, a transformer's batch on text is the published batch / 32
QUICK_BATCH = 4
QUICK = {"drawn": 5000, "held_out": 256}
BLOCK = 128
Batch = tuple[Tensor, Tensor]
EVALUATED_AT_ONCE = 2048  # inputs
WEIGHT_DECAY = 1e-4
WAITS_EVERY = 10  # steps between synchronizations, because GPU kernels run asynchronously
TOLD = (
    "step {step:6d}  {seconds:6.1f} s  train={train_loss:.4f} test={test_loss:.4f} "
    "accuracy={test_accuracy:.4f}  {name}"
)
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
) -> Iterator[Line]:
    """Trains with AdamW. Yields a point after the first step, every ``rule.every`` steps, and at the end.

    ``seconds``: time of the steps so far, without evaluations. ``train_loss``: mean over the batches since
    the last point, with dropout. ``train_accuracy``: of the last of these batches. ``inference_micros``: time
    of the evaluation for each held-out example.
    """
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.learning_rate, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(seed)
    seconds, began, recent = 0.0, clock(), list[Tensor]()
    for step in count(1):
        inputs, targets = (part.to(device) for part in task.draw(rule.batch, generator))
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs)
        loss = task.loss(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        recent.append(loss.detach())
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
        point = {"step": step, "seconds": seconds, "train_loss": train_loss, "test_loss": test_loss}
        point |= {"test_accuracy": accuracy, "train_accuracy": train_accuracy}
        yield {**point, "inference_micros": 1e6 * inference_s / len(task.test[1])}
        if not math.isfinite(train_loss):
            raise FloatingPointError("the loss is not finite")
        if over or accuracy > rule.stop_above:
            return
        began = clock()


# -- the plan ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One planned training of a case of suite tiny_gpt."""

    case: str
    task: str
    entry: Entry
    rule: Rule

    @property
    def name(self) -> str:
        return f"{self.case} lr {self.rule.learning_rate:g}"


def plans(options: ImplementationsOptions, tasks: Sequence[str]) -> list[Plan]:
    """All trainings, in the order of the published tables."""
    sweep = [
        Plan(case=case, task=task, entry=entry, rule=rule)
        for case, entry in entries().items()
        if entry.implementation in options.models and case != NOT_PUBLISHED
        for task in tasks
        if f"_{task}" in case
        for rule in _rules(case, entry, options)
    ]
    return sorted(sweep, key=lambda plan: place(plan.task, plan.entry.implementation))


def _rules(case: str, entry: Entry, options: ImplementationsOptions) -> list[Rule]:
    mlp, batch = entry.implementation == "MLP", entry.published_batch
    if "_addition" in case:
        every = EVERY_MLP if mlp else EVERY
        return [Rule(rate, batch, options.budget_s, every, SOLVED) for rate in options.learning_rates]
    budget_s = options.text_budget_s * (2 if case == DOUBLE else 1)
    if mlp:
        return [Rule(TEXT_RATE, batch, budget_s, EVERY_TEXT_MLP[case])]
    if options.device == "cpu":
        batch = QUICK_BATCH if options.quick else batch // CPU_SHARE
    return [Rule(options.text_learning_rate, options.text_batch or batch, budget_s, EVERY)]


def run(options: ImplementationsOptions, command: Sequence[str], _: Sequence[str]) -> Path:
    """Trains all models, one by one; returns the folder. ``UsageError`` before anything is written."""
    corpus, refused = corpus_for(options)
    todo = plans(options, [task for task in options.tasks if task != "shakespeare" or corpus is not None])
    if not todo:
        raise UsageError(f"--tasks, --models: there is nothing to train{f'; {refused}' if refused else ''}")
    if refused:
        say(f"task shakespeare is left out: {refused}")

    @cache
    def task_of(task: str, last_only: bool) -> Task:
        if task == "shakespeare":
            assert corpus is not None
            return text_task(corpus, block=BLOCK, last_only=last_only)
        questions = {name: getattr(options, name) for name in ("seed", "operations", "digits")}
        return addition_task(**questions, device=device, **(QUICK if options.quick else {}))

    facts: dict[str, Any] = {"text": corpus.name, "text_sizes": corpus.sizes} if corpus else {"text": None}
    journal = Journal(options.output_dir, "implementations")
    facts |= {"refused": refused, "variants": [plan.name for plan in todo]}
    device = journal.begin(options, command, **facts)
    for plan in todo:
        name, rule, status, message = plan.name, plan.rule, PASS, None
        say(f"{name}: {rule.budget_s:g} s at most, {rule.batch} examples in a step")
        facts = {"task": plan.task, "case": plan.case, "model": plan.entry.implementation}
        facts |= {key: getattr(rule, key) for key in ("learning_rate", "batch", "budget_s")}
        task = task_of(plan.task, plan.entry.loss == "last_symbol")
        try:
            model = seeded_model(plan.case, options.seed, config_of(plan, options.digits))
            facts["num_parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
            for point in fit(model, task, rule, options.seed, device):
                journal.write("point", variant=name, **point)
                say(TOLD.format(name=name, **point))
        except Exception as error:  # a model library may raise anything; the others still train
            status, message = "FAIL", words_of(error)
            say(f"{name}: failed: {message}")
        journal.write("outcome", variant=name, status=status, message=message, **facts)
    return journal.path


def corpus_for(options: ImplementationsOptions) -> tuple[Corpus | None, str | None]:
    """The text, or why it is missing. ``UsageError`` if the user asked for the missing text."""
    if "shakespeare" not in options.tasks:
        return None, None
    if options.quick and options.data_dir is None:
        return synthetic(), None
    try:
        return shakespeare(options.data_dir), None
    except UsageError as error:
        if options.only_asked or options.data_dir is not None:
            raise
        return None, str(error)


def config_of(plan: Plan, digits: int) -> dict[str, Any]:
    """The configuration of the case. On addition, the model reads as many symbols as the numbers need."""
    config = dict(plan.entry.config)
    if plan.task == "addition":
        config["input_len" if "input_len" in config else "block_size"] = input_length(digits)
    return config
