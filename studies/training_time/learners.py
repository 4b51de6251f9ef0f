"""The training of a variant of the small GPT: precision, compiler, optimizer and data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.backends import load_backend
from harness.precision import Precision
from harness.program import Forward, Program
from harness.timing.step import replica
from harness.workload import Workload
from studies.corpus import Corpus, windows
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


def make_lesson(corpus: Corpus, *, block: int, steps: int, batch: int, seed: int) -> Lesson:
    """Random windows, drawn with the seed. The windows for evaluation are equal for every seed."""
    source, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(0)
    first, end = corpus.training_length, len(corpus.text)
    return Lesson(
        tokens=torch.tensor(corpus.encoded()),
        block=block,
        batches=torch.randint(first - block, (steps, batch), generator=source),
        train_windows=torch.randint(first - block, (EVALUATED_WINDOWS,), generator=fixed),
        valid_windows=torch.randint(first, end - block, (EVALUATED_WINDOWS,), generator=fixed),
    )


class TorchLearner:
    """A variant that trains in this process. It starts with a copy of ``module``."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        lesson: Lesson,
        *,
        mode: str,
        precision: Precision,
        device: torch.device,
        learning_rate: float,
    ) -> None:
        self.name = name
        self._lesson, self._mode, self._precision, self._device = lesson, mode, precision, device
        inputs, targets = windows(lesson.tokens, lesson.batches[0], lesson.block)
        workload = Workload(module=module, args=(inputs,), target=targets, loss=every_symbol_loss)
        self._program: Program = replica(workload, device, precision.cast, training=True)
        # evaluation is eager and has a module of its own: a compiled module would recompile for it
        self._judge = copy.deepcopy(self._program.module).eval()
        # fused=None lets torch choose, in the same way for all variants
        self._optimizer = torch.optim.AdamW(
            self._program.module.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY
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
