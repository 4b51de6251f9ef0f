"""``--batch-invariant``, on candidates that are batch-variant by plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.metrics import Ended
from harness.numerics.batches import batch_invariance
from harness.schema import BASELINE, Mode
from harness.timing.step import Variant
from harness.workload import Workload
from tests.factories import make_job
from tests.worker.planted import CPU, Of, Trial, changing, inference, right_graph, with_fault

ROWS = 5
DEPENDS = "rows depend on each other by more than rounding, as with batch statistics"


def numbers(*variants: Variant) -> list[dict[str, Any]]:
    """Of eager, and of the candidates."""
    names = [BASELINE, *map(str, range(len(variants)))]
    of_name = dict(zip(names, variants, strict=False))
    ended = Ended(job=make_job(), device=CPU, variants=of_name, synchronize=lambda: None)
    return [*batch_invariance(ended).values()]


def by_size(output: torch.Tensor) -> torch.Tensor:
    """One rounding more, unless the batch is whole."""
    return output if len(output) == ROWS else output * (1 + 2**-20)


def by_neighbor(output: torch.Tensor) -> torch.Tensor:
    return torch.where(output.roll(1, 0) > 0, output, output * (1 + 2**-20))


def refusing(output: torch.Tensor) -> torch.Tensor:
    if len(output) == 1:
        raise ValueError("captured for other sizes")
    return output


@pytest.mark.parametrize(
    ("change", "alone", "company", "note"),
    [
        (lambda output: output, 1.0, 1.0, None),
        (by_size, 0.0, 1.0, None),
        (by_neighbor, None, None, None),
        (refusing, -1.0, 1.0, "failed: ValueError: captured for other sizes"),
    ],
)
def test_a_row_that_depends_on_its_batch_is_shown(
    change: Callable[[Any], Any], alone: float | None, company: float | None, note: str | None
) -> None:
    """None: some elements are equal; -1: not known."""
    torch.manual_seed(0)
    trial = inference(Of(lambda x: x * 3), torch.randn(ROWS, 8))
    variant, _ = trial.compiled(with_fault(changing(change)))
    eager, of_candidate = numbers(trial.variant(), variant)
    for kind, share in (("alone", alone), ("company", company)):
        equal, largest = (of_candidate[f"row_{kind}_{name}"] for name in ("equal", "ulp_largest"))
        assert share == equal if share in (0.0, 1.0) else share == -1.0 or 0.0 < equal < 1.0
        assert (largest is None) if share == -1.0 else (largest == 0.0) == (share == 1.0)
        assert eager[f"row_{kind}_equal"] == 1.0
    assert of_candidate["row_note"] == note


def test_a_compiler_compiles_again_for_one_row_and_says_so() -> None:
    trial = inference(nn.Linear(8, 16), torch.randn(ROWS, 8))
    variant, _ = trial.compiled(right_graph)
    variant.step()
    assert "compiled by itself" in numbers(trial.variant(), variant)[1]["row_note"]


@pytest.mark.parametrize(
    ("function", "rows", "note"),
    [
        (torch.relu, 1, "not defined: the batch has fewer than two rows"),
        (torch.sum, ROWS, f"not defined: no output has {ROWS} rows"),
        (lambda x: x + torch.rand(1), ROWS, "not defined: two calls with other seeds differ"),
        (lambda x: (x, x.T), ROWS, "output.1: not defined, because its first dimension is not the batch"),
        (
            lambda x: x / x.sum(0),
            ROWS,
            "rows depend on each other by more than rounding, as with batch statistics",
        ),
    ],
)
def test_what_is_not_defined_is_said(function: Callable[..., Any], rows: int, note: str) -> None:
    (of_eager,) = numbers(inference(Of(function), torch.arange(8.0 * rows).view(rows, 8) + 1).variant())
    assert of_eager["row_note"] == note
    if note.startswith("not defined"):
        assert of_eager["row_alone_equal"] is of_eager["row_company_ulp_largest"] is None


def test_a_training_step_keeps_its_statistics_and_its_layout() -> None:
    """The forward runs alone: no gradient is left, and inputs in channels-last order stay so."""
    layouts = list[bool]()

    def see(x: torch.Tensor, norm: nn.Module) -> Any:
        layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        return norm(x).mean((2, 3))

    images = torch.randn(ROWS, 3, 4, 4).to(memory_format=torch.channels_last)
    work = Workload(module=Of(see, nn.BatchNorm2d(3)), args=(images,), loss=lambda output, _: output.sum())
    variant = Trial(workload=work, dtype="float32", mode=Mode.TRAINING).variant()
    (of_eager,) = numbers(variant)
    assert of_eager["row_note"] == DEPENDS
    assert all(layouts)
    assert all(parameter.grad is None for parameter in variant.program.module.parameters())
