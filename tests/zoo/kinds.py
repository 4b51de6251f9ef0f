"""Kinds of animals: where in a model's life a misdeed happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.schema import BASELINE, Case
from harness.timing.measure import measure_round
from tests.zoo.acts import Act, Countdown, frame_of

if TYPE_CHECKING:
    import torch
    from torch import nn

Make = Callable[[Case], Any]


def workload(given: Any) -> Any:
    import torch

    from harness.workload import Workload

    if isinstance(given, Workload):
        return given
    return Workload(module=given, args=(torch.randn(4, 8),), target=torch.zeros(4, 8), loss=loss)


def loss(output: Any, target: Any) -> Any:
    return (output - target).square().mean()


def model(change: Callable[[nn.Module, torch.Tensor], Any], **parts: Any) -> nn.Module:
    """A linear layer whose output goes through ``change(module, output)``."""
    from torch import nn

    class Animal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x: torch.Tensor) -> Any:
            return change(self, self.linear(x))

    return Animal()


def changed(change: Callable[[torch.Tensor], Any]) -> Make:
    return lambda case: model(lambda module, x: change(x))


def in_build(act: Act) -> Make:
    def make(case: Case) -> Any:
        act()
        return model(lambda module, x: x)

    return make


def in_step(act: Act) -> Make:
    """Does ``act`` in every step, hidden from compilers, which break their graph there."""

    def make(case: Case) -> Any:
        import torch

        hidden = torch.compiler.disable(act)  # type: ignore[no-untyped-call]

        def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            hidden()
            return x

        return model(change)

    return make


def once(act: Act) -> Make:
    """Does ``act`` in the first step of the process."""
    return lambda case: in_step(Countdown(1, act))(case)


def on_timed_eager_step(calls: int, act: Act) -> Make:
    """Does ``act`` on the n-th step of eager's samples, also of the warm-up; not in the control."""
    counted = Countdown(calls, act)

    def make(case: Case) -> Any:
        import torch

        def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling() and _sampled() == BASELINE:
                counted()
            return x

        return model(change)

    return make


def _sampled() -> str:
    """The variant that is sampled now. The copy does not tell: eager is copied again in some jobs."""
    frame = frame_of(measure_round)
    return "" if frame is None else str(frame.f_locals["variant"])


def _nothing() -> None: ...


def compiled(forward: Act = _nothing, backward: Act = _nothing, tracing: Act = _nothing) -> Make:
    """Acts in the compiled step, when it runs or while it is traced, and never in eager."""

    def make(case: Case) -> Any:
        import torch

        operators = {}
        for name, act in (("forward", forward), ("backward", backward)):

            @torch.library.custom_op(f"zoo::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")
            def op(x: torch.Tensor, act: Act = act) -> torch.Tensor:
                act()
                return x.clone()

            op.register_fake(lambda x, name=name: (name == "forward" and tracing(), torch.empty_like(x))[1])
            operators[name] = op
        operators["forward"].register_autograd(lambda ctx, gradient: operators["backward"](gradient))

        def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                return x
            result: torch.Tensor = operators["forward"](x)
            return result

        return model(change)

    return make


def late(act: Act) -> Make:
    """Acts in the timed rounds, however many steps the warm-up of this machine took before them."""
    return compiled(lambda: act() if in_timed_rounds() else None)


def in_timed_rounds() -> bool:
    from harness.timing.rounds import Rounds

    frame = frame_of(Rounds.endless)
    return frame is not None and bool(frame.f_locals["phase"] == "measure")


def wrong_when_compiled(wrong: Callable[[torch.Tensor], torch.Tensor]) -> Make:
    def make(case: Case) -> Any:
        import torch

        return model(lambda module, x: wrong(x) if torch.compiler.is_compiling() else x)

    return make
