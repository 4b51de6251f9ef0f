"""The training of a variant of the small GPT: precision, compiler, optimizer and data."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.backends import load_backend
from harness.precision import precision as precision_of
from harness.program import Forward, Program
from harness.timing.step import replica
from harness.workload import Workload
from studies.corpus import Corpus, seeded_model, windows
from studies.options import TrainingTimeOptions
from studies.training_time.chunks import Learner
from suites.models.next_symbol import every_symbol_loss

BACKENDS = {"script": "torchscript", "compile": "inductor", "submodules": "inductor_regional"}
WEIGHT_DECAY = 0.01  # AdamW's default
EVALUATED_WINDOWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """The data of one seed, equal for every variant. A window is the index of its first character."""

    tokens: Tensor  # (characters,)
    block: int  # characters in a window
    batches: Tensor  # (steps, batch): windows of the training part
    train_windows: Tensor  # (windows,) of the training part, for evaluation
    valid_windows: Tensor  # (windows,) of the held-out part


def make_lesson(corpus: Corpus, sizes: Mapping[str, int], seed: int) -> Lesson:
    """Random windows, drawn with the seed. The windows for evaluation are equal for every seed."""
    source, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(0)
    first, block = corpus.training_length, sizes["block"]
    return Lesson(
        tokens=torch.tensor(corpus.encoded()),
        block=block,
        batches=torch.randint(first - block, (sizes["steps"], sizes["batch"]), generator=source),
        train_windows=torch.randint(first - block, (EVALUATED_WINDOWS,), generator=fixed),
        valid_windows=torch.randint(first, len(corpus.text) - block, (EVALUATED_WINDOWS,), generator=fixed),
    )


def learners_of(
    options: TrainingTimeOptions, corpus: Corpus, sizes: Mapping[str, int], seed: int
) -> list[Learner]:
    """A learner for each variant. All start with the weights of this seed."""
    lesson = make_lesson(corpus, sizes, seed)
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
        with torch.no_grad(), self._precision.surroundings():
            return self._mean_loss(self._lesson.train_windows), self._mean_loss(self._lesson.valid_windows)

    def _mean_loss(self, starts: Tensor) -> float:
        inputs, targets = self._batch(starts)
        with self._precision.context(self._device.type):
            return float(every_symbol_loss(self._judge(inputs), targets))

    def _batch(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = windows(self._lesson.tokens, starts, self._lesson.block)
        return inputs.to(self._device), targets.to(self._device)
