"""Study A: how long a small character-level GPT takes to train, by precision and compiler."""

from __future__ import annotations

import copy
import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.backends import load_backend
from harness.devices import attention_kernels, of
from harness.precision import precision as precision_of
from harness.program import Forward, Program
from harness.timing.copies import replica
from harness.workload import Workload
from runner.errors import UsageError
from studies.corpus import Corpus, seeded_model, shakespeare, synthetic, windows
from studies.journal import PASS, Journal, say
from studies.options import TrainingTimeOptions
from studies.training_time.chunks import Learner, alternate, plan_chunks
from suites.models.next_symbol import every_symbol_loss

SIZES = {"steps": 300, "batch": 8, "block": 256, "seeds": 3}
ACCELERATED = {**SIZES, "steps": 5000, "batch": 64}
QUICK = {"steps": 12, "batch": 2, "block": 32, "seeds": 2, "every": 4}
LONGEST_BLOCK, EVALUATIONS = 256, 10
BACKENDS = {"script": "torchscript", "compile": "inductor", "submodules": "inductor_regional"}
WEIGHT_DECAY = 0.01  # AdamW's default
EVALUATED_WINDOWS = 16


class Lesson:
    """The data of one seed, equal for every variant. A window is the index of its first character.

    ``batches`` (steps, batch): drawn with the seed. ``evaluated``: windows of the training part and of the
    held-out part, equal for every seed.
    """

    def __init__(self, corpus: Corpus, sizes: Mapping[str, int], seed: int) -> None:
        source, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(0)
        self.tokens, self.block = torch.tensor(corpus.encoded()), sizes["block"]
        first, end = corpus.training_length, len(corpus.text) - self.block
        self.batches = torch.randint(first - self.block, (sizes["steps"], sizes["batch"]), generator=source)
        self.evaluated = [
            torch.randint(*between, (EVALUATED_WINDOWS,), generator=fixed)
            for between in ((0, first - self.block), (first, end))
        ]


def learners_of(
    options: TrainingTimeOptions, corpus: Corpus, sizes: Mapping[str, int], seed: int
) -> list[Learner]:
    """A learner for each variant. All start with the weights of this seed."""
    lesson = Lesson(corpus, sizes, seed)
    return [
        TorchLearner(f"{name} {mode}", seeded_model("GPT_150k", seed), lesson, options)
        for name in options.precisions
        for mode in options.modes
    ]


class TorchLearner:
    """A variant that trains in this process. It starts with a copy of ``module``."""

    def __init__(self, name: str, module: nn.Module, lesson: Lesson, options: TrainingTimeOptions) -> None:
        precision, _, self._mode = name.partition(" ")
        self.name, self._lesson, self._device = name, lesson, torch.device(options.device)
        self._precision = precision_of(precision, options.device)
        inputs, targets = windows(lesson.tokens, lesson.batches[0], lesson.block)
        workload = Workload(module=module, args=(inputs,), target=targets, loss=every_symbol_loss)
        self._program: Program = replica(workload, self._device, self._precision.cast, training=True)
        # evaluation is eager and has a module of its own: a compiled module would recompile for it
        self._judge = copy.deepcopy(self._program.module).eval()
        # fused=None lets torch choose, in the same way for all variants
        self._optimizer = torch.optim.AdamW(
            self._program.module.parameters(), lr=options.learning_rate, weight_decay=WEIGHT_DECAY
        )
        self._forward: Forward = self._program.forward()

    def prepare(self) -> None:
        if self._mode in BACKENDS:
            with self._precision.context(self._device.type):
                self._forward = load_backend(BACKENDS[self._mode])(self._program).forward

    def run(self, first: int, steps: int) -> Sequence[float]:
        losses = []
        with self._precision.surroundings():
            for starts in self._lesson.batches[first : first + steps]:
                inputs, targets = self._batch(starts)
                self._optimizer.zero_grad(set_to_none=True)
                with self._precision.context(self._device.type):
                    loss, _ = self._forward((inputs,), {}, targets)
                loss.backward()
                self._optimizer.step()
                losses.append(loss.detach())
        together: list[float] = torch.stack(losses).float().tolist()  # waits for the device
        return together

    def evaluate(self) -> tuple[float, float]:
        self._judge.load_state_dict(self._program.module.state_dict())
        with torch.no_grad(), self._precision.surroundings(), self._precision.context(self._device.type):
            train, valid = (
                float(every_symbol_loss(self._judge(inputs), targets))
                for inputs, targets in map(self._batch, self._lesson.evaluated)
            )
        return train, valid

    def _batch(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = windows(self._lesson.tokens, starts, self._lesson.block)
        return inputs.to(self._device), targets.to(self._device)


# -- the run ------------------------------------------------------------------------------------


def run(options: TrainingTimeOptions, command: Sequence[str], _: Sequence[str]) -> Path:
    """Trains every variant with every seed; returns the folder. ``UsageError`` before anything is written."""
    corpus = synthetic() if options.quick and options.data_dir is None else shakespeare(options.data_dir)
    sizes = sizes_of(options)
    chunks = plan_chunks(sizes["steps"], options.chunk, sizes["every"])
    journal = Journal(options.output_dir, "training-time")
    # compilation is timed, so the caches of earlier runs must not be used
    with tempfile.TemporaryDirectory(prefix="study-cache-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        journal.begin(
            options,
            command,
            sizes=sizes,
            text={"name": corpus.name, "characters": len(corpus.text), "training": corpus.training_length},
            parameters=sum(p.numel() for p in seeded_model("GPT_150k", 0).parameters()),
            variants=[f"{precision} {mode}" for precision in options.precisions for mode in options.modes],
            attention_kernels=attention_kernels(),
        )
        for seed in range(sizes["seeds"]):
            for kind, facts in alternate(
                learners_of(options, corpus, sizes, seed), chunks, random.Random(seed)
            ):
                _tell(kind, facts, sizes["batch"] * sizes["block"] / corpus.training_length, seed)
                journal.write(kind, seed=seed, **facts)
    return journal.path


def sizes_of(options: TrainingTimeOptions) -> dict[str, int]:
    """Steps, batch, block, seeds and steps between evaluations, as requested or by default."""
    asked = {name: getattr(options, name) for name in QUICK}
    default = QUICK if options.quick else ACCELERATED if of(options.device).accelerated else SIZES
    sizes = {**default, **{name: value for name, value in asked.items() if value}}
    if sizes["block"] > LONGEST_BLOCK:
        raise UsageError(
            f"--block-size: the model reads {LONGEST_BLOCK} characters at most, not {sizes['block']}"
        )
    return {**sizes, "every": sizes.get("every", max(1, sizes["steps"] // EVALUATIONS))}


def _tell(kind: str, facts: dict[str, Any], epoch: float, seed: int) -> None:
    name = facts["variant"]
    if kind == "prepared":
        say(f"{name}: ready to train after {facts['prepare_s']:.1f} s")
    elif kind == "chunk" and facts["valid"] is not None:
        step = facts["first"] + facts["steps"] - 1
        losses = f"loss={facts['losses'][-1]:.6f} train={facts['train']:.6f} valid={facts['valid']:.6f}"
        say(f"Step {step:5d}: {losses} epoch={(step + 1) * epoch:.2f}  {name}, seed {seed}")
    elif kind == "outcome" and facts["status"] != PASS:
        say(f"{name}: {facts['status']}: {facts['message']}")
