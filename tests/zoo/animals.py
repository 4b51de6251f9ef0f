"""A suite of misbehaving models: what a harness must survive. Each animal is one way to go wrong.

``expected.py`` says for each how it has to end. Those that misbehave when compiled are tame in
eager: Dynamo puts an op into the graph that eager never calls.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.schema import Case, Setting
from tests.zoo import acts
from tests.zoo.acts import Act, Countdown

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.workload import Workload

HOSTILE_NAME = "../up and/down \"quoted\" 'too' <script>alert(1)</script> =1+1 🦓"
LATE = 20  # a call that comes in the timed rounds


def cases(setting: Setting) -> tuple[Case, ...]:
    return tuple(
        Case(suite=__file__, name=name, mode=setting.mode, batch_size=4, published_batch_size=4)
        for name in ANIMALS
    )


def build(case: Case) -> Workload:
    made: Any = ANIMALS[case.name](case)
    return made if case.name == "returns_no_workload" else _workload(made)


def _workload(made: Any) -> Any:
    import torch

    from harness.workload import Workload

    if isinstance(made, Workload):
        return made
    return Workload(module=made, args=(torch.randn(4, 8),), target=torch.zeros(4, 8), loss=_loss)


def _loss(output: Any, target: Any) -> Any:
    return (output - target).square().mean()


# -- kinds of animals --------------------------------------------------------------

Make = Callable[[Case], Any]


def _module(change: Callable[[nn.Module, torch.Tensor], Any], **parts: Any) -> nn.Module:
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


def _changed(change: Callable[[torch.Tensor], Any]) -> Make:
    return lambda case: _module(lambda module, x: change(x))


def _in_build(act: Act) -> Make:
    def make(case: Case) -> Any:
        act()
        return _module(lambda module, x: x)

    return make


def _in_step(act: Act) -> Make:
    """Does ``act`` in every step, hidden from compilers, which break their graph there."""

    def make(case: Case) -> Any:
        import torch

        hidden = torch.compiler.disable(act)  # type: ignore[no-untyped-call]

        def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            hidden()
            return x

        return _module(change)

    return make


def _once(act: Act) -> Make:
    """Does ``act`` in the first step of the process."""
    return lambda case: _in_step(Countdown(1, act))(case)


def _on_own_eager_step(calls: int, act: Act) -> Make:
    """Does ``act`` on the n-th step of each copy of the model, in eager only."""

    class Count:
        seen = 0  # a copy of the model counts for itself

    def make(case: Case) -> Any:
        import torch

        def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                count: Any = module.count
                count.seen += 1
                if count.seen == calls:
                    act()
            return x

        return _module(change, count=Count())

    return make


def _nothing() -> None: ...


def _compiled(forward: Act = _nothing, backward: Act = _nothing, tracing: Act = _nothing) -> Make:
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
            result: torch.Tensor = operators["forward"](x) if torch.compiler.is_compiling() else x
            return result

        return _module(change)

    return make


def _late(act: Act) -> Make:
    """Acts in a late compiled step; counted anew in each process."""
    return lambda case: _compiled(Countdown(LATE, act))(case)


def _wrong_when_compiled(wrong: Callable[[torch.Tensor], torch.Tensor]) -> Make:
    def make(case: Case) -> Any:
        import torch

        return _module(lambda module, x: wrong(x) if torch.compiler.is_compiling() else x)

    return make


# -- single animals ------------------------------------------------------------------


def _lacks_a_library(case: Case) -> Any:
    import a_library_that_is_not_installed  # type: ignore[import-not-found]

    return a_library_that_is_not_installed


def _imports_what_raises(case: Case) -> Any:
    import tests.zoo.raises_on_import as module

    return module


def _raises_in_compiler(x: torch.Tensor) -> torch.Tensor:
    import torch

    if torch.compiler.is_compiling():
        raise RuntimeError("not while compiling")
    return x


def _no_fake_kernel(case: Case) -> Any:
    import torch

    @torch.library.custom_op("zoo::no_fake", mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    op.register_autograd(lambda ctx, gradient: gradient)
    return _module(lambda module, x: op(x))


def _never_compiled(case: Case) -> Any:
    import torch

    module = _module(lambda module, x: x)
    module.forward = torch.compiler.disable(module.forward)  # type: ignore[no-untyped-call]
    return module


def _recompiles(case: Case) -> Any:
    def change(module: Any, x: torch.Tensor) -> torch.Tensor:
        module.steps = f"{len(module.steps)}{module.steps}"  # a constant of the graph
        return x * (1.0 if module.steps else 0.0)

    return _module(change, steps="")


def _needs_a_small_batch(case: Case) -> Any:
    import torch

    def change(x: torch.Tensor) -> torch.Tensor:
        if case.batch_size is not None and case.batch_size > 2:
            x = x + torch.empty(1 << 50).sum()
        return x

    return _module(lambda module, x: change(x))


def _leaks(case: Case) -> Any:
    kept: list[bytes] = []
    return _in_step(lambda: kept.append(bytes(4096)))(case)


def _different_each_run(case: Case) -> Any:
    import torch

    calls = iter(range(1, 1 << 30))
    hidden: Callable[[], int] = torch.compiler.disable(lambda: next(calls))  # type: ignore[no-untyped-call]
    return _module(lambda module, x: x * hidden())


def _different_each_step(case: Case) -> Any:
    """What it computes depends on how often this copy has been called."""
    import torch

    @torch.compiler.disable  # type: ignore[no-untyped-call, untyped-decorator]
    def count(module: Any) -> int:
        module.steps += 1
        steps: int = module.steps
        return steps

    return _module(lambda module, x: x * count(module), steps=0)


def _wrong_gradient_when_compiled(case: Case) -> Any:
    import torch

    def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.detach() + (x - x.detach()) * 1.05 if torch.compiler.is_compiling() else x

    return _module(change)


def _wrong_late(case: Case) -> Any:
    import torch

    calls = iter(range(1 << 30))

    @torch.library.custom_op("zoo::late", mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x: torch.Tensor) -> torch.Tensor:
        return x * (1.0 if next(calls) < LATE else 2.0)

    op.register_fake(lambda x: torch.empty_like(x))
    op.register_autograd(lambda ctx, gradient: gradient)
    return _module(lambda module, x: op(x) if torch.compiler.is_compiling() else x)


class Pair(NamedTuple):
    first: Any
    second: dict[str, Any]


@dataclasses.dataclass
class Output:
    pair: Pair
    nothing: None = None


class Opaque:
    """Holds a tensor where nothing that walks containers can find it."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _output(wrap: Callable[[torch.Tensor], Any], unwrap: Callable[[Any], Any]) -> Make:
    def make(case: Case) -> Any:
        module = _module(lambda module, x: wrap(x))
        return dataclasses.replace(_workload(module), loss=lambda output, target: _loss(unwrap(output), target))

    return make


def _no_tensors(case: Case) -> Any:
    module = _module(lambda module, x: "no tensor here")
    return dataclasses.replace(_workload(module), loss=lambda output, target: 0.0)


def _drops(case: Case) -> Any:
    from torch import nn

    drop = nn.Dropout(0.5)
    return _module(lambda module, x: drop(x))


def _mutates_inputs(case: Case) -> Any:
    from torch import nn

    class Mutator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(x.clone())
            x.mul_(0.5)
            return result

    return Mutator()


def _mutates_parameters(case: Case) -> Any:
    import torch
    from torch import nn

    def change(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        result = x + module.code  # type: ignore[operator]
        with torch.no_grad():
            module.code.mul_(0.5)  # type: ignore[operator, union-attr]
        return result

    return _module(change, code=nn.Parameter(torch.ones(8), requires_grad=False))


ANIMALS: dict[str, Make] = {
    "tame": _changed(lambda x: x),
    HOSTILE_NAME: _changed(lambda x: x),
    # while it is built
    "lacks_a_library": _lacks_a_library,
    "raises_on_import": _imports_what_raises,
    "raises_in_build": _in_build(acts.bite),
    "interrupts_in_build": _in_build(acts.interrupt),
    "sys_exit_in_build": _in_build(acts.exit_politely),
    "segfaults_in_build": _in_build(acts.segfault),
    "hangs_in_build": _in_build(acts.hang),
    "returns_no_workload": lambda case: "a string",
    "cannot_be_copied": lambda case: _module(lambda module, x: x, lock=threading.Lock()),
    # in eager
    "raises_in_eager": _in_step(acts.bite),
    "raises_without_words": _in_step(acts.bite_without_words),
    "raises_at_length": _in_step(acts.bite_at_length),
    "raises_on_2nd_run": lambda case: _in_step(Countdown(2, acts.bite))(case),
    "raises_on_9th_eager_step": _on_own_eager_step(9, acts.bite),
    "segfaults_in_eager": _in_step(acts.segfault),
    "segfaults_on_9th_eager_step": _on_own_eager_step(9, acts.segfault),
    "aborts": _in_step(acts.die_of(signal.SIGABRT)),
    "os_exit": _in_step(acts.exit_at_once(7)),
    "os_exit_0": _in_step(acts.exit_at_once(0)),
    "sys_exit": _in_step(acts.exit_politely),
    "hangs_in_eager": _in_step(acts.spin),
    # in the compiler
    "raises_in_compiler": _changed(_raises_in_compiler),
    "raises_in_fake_kernel": _compiled(tracing=acts.bite),
    "no_fake_kernel": _no_fake_kernel,
    "segfaults_in_compiler": _compiled(tracing=acts.segfault),
    "hangs_in_compiler": _compiled(tracing=acts.hang),
    "never_compiled": _never_compiled,
    "recompiles": _recompiles,
    # in the compiled step
    "raises_in_compiled_step": _compiled(acts.bite),
    "raises_in_compiled_backward": _compiled(backward=acts.bite),
    "raises_on_20th_compiled_step": _late(acts.bite),
    "interrupts_compiled": _compiled(acts.interrupt),
    "segfaults_compiled": _compiled(acts.segfault),
    "segfaults_in_compiled_backward": _compiled(backward=acts.segfault),
    "segfaults_on_20th_compiled_step": _late(acts.segfault),
    "killed_compiled": _compiled(acts.die_of(signal.SIGKILL)),
    "os_exit_compiled": _compiled(acts.exit_at_once(7)),
    "os_exit_0_compiled": _compiled(acts.exit_at_once(0)),
    "sys_exit_compiled": _compiled(acts.exit_politely),
    "hangs_compiled": _compiled(acts.hang),
    "hangs_in_c_compiled": _compiled(acts.hang_in_c),
    "hangs_on_20th_compiled_step": _late(acts.hang),
    "ignores_sigterm": _compiled(acts.ignore_signals_and_hang),
    # processes and threads
    "leaves_children": _once(acts.leave_a_child),
    "leaves_a_daemon": _once(acts.leave_a_daemon),
    "forks_and_both_go_on": lambda case: _compiled(Countdown(1, acts.fork_and_go_on))(case),
    "hangs_at_exit": _once(acts.hang_at_exit),
    # memory
    "out_of_memory": _changed(lambda x: x + sys.modules["torch"].empty(1 << 50).sum()),
    "out_of_memory_compiled": _compiled(lambda: bytearray(1 << 60).clear()),
    "needs_a_small_batch": _needs_a_small_batch,
    "eats_memory_compiled": _compiled(acts.eat_memory),
    "children_eat_memory": _compiled(acts.feed_children),
    "leaks_each_step": _leaks,
    # output
    "prints_garbage": _once(acts.print_garbage),
    "breaks_streams": _once(acts.break_streams),
    "breaks_streams_and_raises": _compiled(acts.break_streams_and_bite),
    "closes_files": _once(acts.close_standard_streams),
    "closes_files_and_raises": _compiled(acts.close_standard_streams_and_bite),
    "closes_everything": _compiled(acts.close_everything),
    "writes_everywhere": _compiled(acts.write_everywhere),
    # what belongs to everybody
    "changes_the_process": _in_step(acts.change_the_process),
    "changes_torch": _in_step(acts.change_torch),
    "changes_torch_in_build": _in_build(acts.change_torch),
    # values
    "nan": _changed(lambda x: x * float("nan")),
    "nan_when_compiled": _wrong_when_compiled(lambda x: x * float("nan")),
    "wrong_when_compiled": _wrong_when_compiled(lambda x: x * 1.01),
    "wrong_gradient_when_compiled": _wrong_gradient_when_compiled,
    "wrong_shape_when_compiled": _wrong_when_compiled(lambda x: x[:, :1]),
    "wrong_dtype_when_compiled": _wrong_when_compiled(lambda x: x.double()),
    "wrong_from_20th_compiled_step": _wrong_late,
    "different_each_run": _different_each_run,
    "different_each_step": _different_each_step,
    "drops_at_random": _drops,
    "nested_output": _output(lambda x: Output(Pair(x, {"deep": [x * 2, "text"]})), lambda o: o.pair.first),
    "opaque_output": _output(Opaque, lambda output: output.value),
    "no_tensors": _no_tensors,
    "mutates_inputs": _mutates_inputs,
    "mutates_parameters": _mutates_parameters,
}
