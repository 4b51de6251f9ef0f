"""Study B: four implementations of a small language model, on addition and on Shakespeare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from runner.errors import UsageError, words_of
from studies.corpus import Corpus, seeded_model, shakespeare, synthetic
from studies.implementations.addition import input_length
from studies.implementations.results import SOLVED, place
from studies.implementations.tasks import Rule, Task, addition_task, fit, text_task
from studies.journal import PASS, Journal, say
from studies.options import ImplementationsOptions
from suites.tiny_gpt import Entry, entries

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
        for task, rules in (("addition", _on_addition), ("shakespeare", _on_text))
        if task in tasks and f"_{task}" in case
        for rule in rules(case, entry, options)
    ]
    return sorted(sweep, key=lambda plan: place(plan.task, plan.entry.implementation))


def _on_addition(case: str, entry: Entry, options: ImplementationsOptions) -> Iterator[Rule]:
    every = EVERY_MLP if entry.implementation == "MLP" else EVERY
    for rate in options.learning_rates:
        yield Rule(rate, entry.published_batch, options.budget_s, every, stop_above=SOLVED)


def _on_text(case: str, entry: Entry, options: ImplementationsOptions) -> Iterator[Rule]:
    rate, batch = TEXT_RATE, entry.published_batch
    if entry.implementation != "MLP":
        rate = options.text_learning_rate
        share = QUICK_BATCH if options.quick else batch // CPU_SHARE
        batch = options.text_batch or (share if options.device == "cpu" else batch)
    budget_s = options.text_budget_s * (2 if case == DOUBLE else 1)
    yield Rule(rate, batch, budget_s, EVERY_TEXT_MLP.get(case, EVERY))


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
    names = [plan.name for plan in todo]
    device = journal.begin(options, command, refused=refused, variants=names, **facts)
    for plan in todo:
        say(f"{plan.name}: {plan.rule.budget_s:g} s at most, {plan.rule.batch} examples in a step")
        _fit(plan, options, task_of(plan.task, plan.entry.loss == "last_symbol"), device, journal)
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


def _fit(
    plan: Plan, options: ImplementationsOptions, task: Task, device: torch.device, journal: Journal
) -> None:
    name, rule, status, message = plan.name, plan.rule, PASS, None
    facts: dict[str, Any] = {"variant": name, "task": plan.task, "case": plan.case}
    facts |= {"model": plan.entry.implementation, "learning_rate": rule.learning_rate}
    facts |= {"batch": rule.batch, "budget_s": rule.budget_s}
    try:
        model = seeded_model(plan.case, options.seed, config_of(plan, options.digits))
        facts["num_parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        for point in fit(model, task, rule, options.seed, device):
            journal.write("point", variant=name, **asdict(point))
            losses = f"train={point.train_loss:.4f} test={point.test_loss:.4f}"
            accuracy = f"accuracy={point.test_accuracy:.4f}"
            say(f"step {point.step:6d}  {point.seconds:6.1f} s  {losses} {accuracy}  {name}")
    except Exception as error:  # a model library may raise anything; the others still train
        status, message = "FAIL", words_of(error)
        say(f"{name}: failed: {message}")
    journal.write("outcome", status=status, message=message, **facts)


def config_of(plan: Plan, digits: int) -> dict[str, Any]:
    """The configuration of the case. On addition, the model reads as many symbols as the numbers need."""
    config = dict(plan.entry.config)
    if plan.task == "addition":
        config["input_len" if "input_len" in config else "block_size"] = input_length(digits)
    return config
