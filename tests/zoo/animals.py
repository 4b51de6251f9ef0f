"""A suite of misbehaving models: what a harness must survive. Each animal is one way to go wrong.

``expected.py`` says for each how it has to end. Those that misbehave when compiled are tame in
eager: Dynamo puts an op into the graph that eager never calls.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.schema import Case, Setting
from tests.zoo import acts
from tests.zoo.acts import Countdown, in_turn
from tests.zoo.kinds import (
    Make,
    changed,
    compiled,
    in_build,
    in_step,
    late,
    loss,
    model,
    on_timed_eager_step,
    once,
    workload,
    wrong_when_compiled,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.workload import Workload

LATE = 20  # a call that comes after the first checks
HOSTILE_NAME = "../up and/down \"quoted\" 'too' <script>alert(1)</script> =1+1 🦓"


def cases(setting: Setting) -> tuple[Case, ...]:
    return tuple(
        Case(suite=__file__, name=name, mode=setting.mode, batch_size=4, published_batch_size=4)
        for name in ANIMALS
    )


def build(case: Case) -> Workload:
    animal: Any = ANIMALS[case.name](case)
    return animal if isinstance(animal, str) else workload(animal)  # type: ignore[return-value]


# -- single animals ------------------------------------------------------------------
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
    return model(lambda module, x: op(x))


def _never_compiled(case: Case) -> Any:
    import torch

    module = model(lambda module, x: x)
    hidden = torch.compiler.disable(type(module).forward)  # type: ignore[no-untyped-call]
    module.__class__ = type("Hidden", (type(module),), {"forward": hidden})
    hidden_loss = torch.compiler.disable(loss)  # type: ignore[no-untyped-call]
    return dataclasses.replace(workload(module), loss=hidden_loss)


def _recompiles(case: Case) -> Any:
    def change(module: Any, x: torch.Tensor) -> torch.Tensor:
        module.steps = f"{len(module.steps)}{module.steps}"  # a constant of the graph
        return x * (1.0 if module.steps else 0.0)

    return model(change, steps="")


def _needs_a_small_batch(case: Case) -> Any:
    import torch

    size = case.batch_size or 1
    module = model(lambda module, x: x if x.shape[0] <= 2 else x + torch.empty(1 << 50).sum())
    return dataclasses.replace(workload(module), args=(torch.randn(size, 8),), target=torch.zeros(size, 8))


def _leaks(case: Case) -> Any:
    kept: list[bytes] = []
    return in_step(lambda: kept.append(bytes(4096)))(case)


def _different_each_run(case: Case) -> Any:
    import torch

    calls = iter(range(1, 1 << 30))
    hidden: Callable[[], int] = torch.compiler.disable(lambda: next(calls))  # type: ignore[no-untyped-call]
    return model(lambda module, x: x * hidden())


def _different_each_step(case: Case) -> Any:
    """What it computes depends on how often this copy has been called."""
    import torch

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def count(module: Any) -> int:
        module.steps += 1
        steps: int = module.steps
        return steps

    return model(lambda module, x: x * count(module), steps=0)


def _wrong_gradient(x: torch.Tensor, factor: float = 1.05) -> torch.Tensor:
    return x.detach() + (x - x.detach()) * factor


def _wrong_late(case: Case) -> Any:
    import torch

    calls = iter(range(1 << 30))

    @torch.library.custom_op("zoo::late", mutates_args=(), schema="(Tensor x) -> Tensor")
    def op(x: torch.Tensor) -> torch.Tensor:
        return x * (1.0 if next(calls) < LATE else 2.0)

    op.register_fake(lambda x: torch.empty_like(x))
    op.register_autograd(lambda ctx, gradient: gradient)
    return model(lambda module, x: op(x) if torch.compiler.is_compiling() else x)


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
        module = model(lambda module, x: wrap(x))
        return dataclasses.replace(workload(module), loss=lambda out, target: loss(unwrap(out), target))

    return make


def _no_tensors(case: Case) -> Any:
    module = model(lambda module, x: "no tensor here")
    return dataclasses.replace(workload(module), loss=lambda output, target: 0.0)


def _drops(case: Case) -> Any:
    from torch import nn

    drop = nn.Dropout(0.5)
    return model(lambda module, x: drop(x))


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
            module.code.mul_(0.5)  # type: ignore[operator]
        return result

    return model(change, code=nn.Parameter(torch.ones(8), requires_grad=False))


ANIMALS: dict[str, Make] = {
    "tame": changed(lambda x: x),
    HOSTILE_NAME: changed(lambda x: x),
    # while it is built
    "lacks_a_library": in_build(acts.imports("a_library_that_is_not_installed")),
    "raises_on_import": in_build(acts.imports("tests.zoo.raises_on_import")),
    "raises_in_build": in_build(acts.bite),
    "interrupts_in_build": in_build(acts.interrupt),
    "sys_exit_in_build": in_build(acts.exit_politely),
    "segfaults_in_build": in_build(acts.segfault),
    "hangs_in_build": in_build(acts.hang),
    "returns_no_workload": lambda case: "a string",
    "cannot_be_copied": lambda case: model(lambda module, x: x, lock=threading.Lock()),
    # in eager
    "raises_in_eager": in_step(acts.bite),
    "raises_without_words": in_step(acts.bite_without_words),
    "raises_at_length": in_step(acts.bite_at_length),
    "raises_on_2nd_run": lambda case: in_step(Countdown(2, acts.bite))(case),
    "raises_on_9th_eager_step": on_timed_eager_step(9, acts.bite),
    "segfaults_in_eager": in_step(acts.segfault),
    "segfaults_on_9th_eager_step": on_timed_eager_step(9, acts.segfault),
    "aborts": in_step(acts.die_of(signal.SIGABRT)),
    "os_exit": in_step(acts.exit_at_once(7)),
    "os_exit_0": in_step(acts.exit_at_once(0)),
    "sys_exit": in_step(acts.exit_politely),
    "hangs_in_eager": in_step(acts.spin),
    # in the compiler
    "raises_in_compiler": changed(_raises_in_compiler),
    "raises_in_fake_kernel": compiled(tracing=acts.bite),
    "no_fake_kernel": _no_fake_kernel,
    "segfaults_in_compiler": compiled(tracing=acts.segfault),
    "hangs_in_compiler": compiled(tracing=acts.hang),
    "never_compiled": _never_compiled,
    "recompiles": _recompiles,
    # in the compiled step
    "raises_in_compiled_step": compiled(acts.bite),
    "raises_in_compiled_backward": compiled(backward=acts.bite),
    "raises_in_timed_rounds": late(acts.bite),
    "interrupts_compiled": compiled(acts.interrupt),
    "segfaults_compiled": compiled(acts.segfault),
    "segfaults_in_compiled_backward": compiled(backward=acts.segfault),
    "segfaults_in_timed_rounds": late(acts.segfault),
    "killed_compiled": compiled(acts.die_of(signal.SIGKILL)),
    "os_exit_compiled": compiled(acts.exit_at_once(7)),
    "os_exit_0_compiled": compiled(acts.exit_at_once(0)),
    "sys_exit_compiled": compiled(acts.exit_politely),
    "hangs_compiled": compiled(acts.hang),
    "hangs_in_c_compiled": compiled(acts.hang_in_c),
    "hangs_in_timed_rounds": late(acts.hang),
    "ignores_sigterm": compiled(acts.ignore_signals_and_hang),
    # processes and threads
    "leaves_children": once(acts.leave_a_child),
    "leaves_a_daemon": once(acts.leave_a_daemon),
    "leaves_both_and_hangs": compiled(in_turn(acts.leave_a_child, acts.leave_a_daemon, acts.hang)),
    "kills_its_parent": compiled(acts.kill_the_parent),
    "forks_and_both_go_on": lambda case: compiled(Countdown(1, acts.fork_and_go_on))(case),
    "hangs_at_exit": once(acts.hang_at_exit),
    # memory
    "out_of_memory": changed(lambda x: x + sys.modules["torch"].empty(1 << 50).sum()),
    "out_of_memory_compiled": compiled(lambda: bytearray(1 << 60).clear()),
    "needs_a_small_batch": _needs_a_small_batch,
    "eats_memory_compiled": compiled(acts.eat_memory),
    "children_eat_memory": compiled(acts.feed_children),
    "leaks_each_step": _leaks,
    # output
    "prints_garbage": once(acts.print_garbage),
    "breaks_streams": once(acts.break_streams),
    "breaks_streams_and_raises": compiled(in_turn(acts.break_streams, acts.bite)),
    "closes_files": once(acts.close_standard_streams),
    "closes_files_and_raises": compiled(in_turn(acts.close_standard_streams, acts.bite)),
    "closes_everything": compiled(acts.close_everything),
    "writes_everywhere": compiled(acts.write_everywhere),
    # what the parent reads
    "page_truncate": in_build(acts.truncate_page),
    "page_deep": in_build(acts.write_page(b"[" * 4095 + b"\0")),
    "page_inf": in_build(acts.write_page(b'["a", "b", 1e999]\0')),
    "page_garbage": in_build(acts.write_page(bytes(range(255, -1, -1)) * 16)),
    "pipe_deep": in_build(acts.write_reply(b"[" * 200_000 + b"\n")),
    "pipe_nan": in_build(acts.write_reply(b'{"ok": NaN}\n')),
    "pipe_wrongtypes": in_build(acts.write_reply(b'{"status": 3, "ok": [1], "failed": [{}]}\n')),
    "pipe_digits": in_build(acts.write_reply(b'{"ok": {"model": ' + b"9" * 20_000 + b"}}\n")),
    "pipe_long_line": in_build(acts.write_reply(b"x" * acts.MEGABYTE, 300)),
    "pipe_binary": compiled(acts.write_reply(random.Random(0).randbytes(acts.MEGABYTE))),
    "closes_requests": compiled(acts.close_requests),
    "removes_its_folder": compiled(acts.remove_the_folder_and_abort),
    "prints_a_gigabyte": in_build(acts.print_a_gigabyte),
    # what belongs to everybody
    "changes_the_process": in_step(acts.change_the_process),
    "changes_torch": in_step(acts.change_torch),
    "changes_torch_in_build": in_build(acts.change_torch),
    # values
    "nan": changed(lambda x: x * float("nan")),
    "nan_when_compiled": wrong_when_compiled(lambda x: x * float("nan")),
    "wrong_when_compiled": wrong_when_compiled(lambda x: x * 1.01),
    "wrong_gradient_when_compiled": wrong_when_compiled(_wrong_gradient),
    "wrong_shape_when_compiled": wrong_when_compiled(lambda x: x[:, :1]),
    "wrong_dtype_when_compiled": wrong_when_compiled(lambda x: x.double()),
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
