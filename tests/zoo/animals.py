"""A suite of misbehaving models: what a harness must survive. Each animal is one way to go wrong.

``compiled_only`` animals behave in eager: Dynamo puts a custom op into the
graph that eager never calls, so the fault happens in the compiled step alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.schema import Case, Setting

if TYPE_CHECKING:
    import torch

    from harness.workload import Workload

HOSTILE_NAME = "../up and/down \"quoted\" 'too' <script>alert(1)</script> =1+1 🦓"


def cases(setting: Setting) -> tuple[Case, ...]:
    return tuple(
        Case(suite=__file__, name=name, mode=setting.mode, batch_size=4, published_batch_size=4)
        for name in ANIMALS
    )


def build(case: Case) -> Workload:
    from torch import nn

    from harness.workload import Workload

    made = ANIMALS[case.name]()
    if isinstance(made, Workload):
        return made
    return _workload(made if isinstance(made, nn.Module) else _module(made))


def _workload(module: Any, **changes: Any) -> Workload:
    import torch

    from harness.workload import Workload

    given = {"args": (torch.randn(4, 8),), "target": torch.zeros(4, 8), "loss": _loss, **changes}
    return Workload(module=module, **given)


def _loss(output: Any, target: Any) -> Any:
    return (output - target).square().mean()


def _module(change: Callable[[torch.Tensor], Any]) -> Any:
    """A linear layer whose output goes through ``change``."""
    from torch import nn

    class Animal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return change(self.linear(x))

    return Animal()


def _compiled_only(act: Callable[[], None]) -> Callable[[], Any]:
    """An animal that does ``act`` in the compiled step, when it runs, and nothing in eager."""

    def make() -> Any:
        import torch

        @torch.library.custom_op("zoo::act", mutates_args=(), schema="(Tensor x) -> Tensor")
        def op(x: torch.Tensor) -> torch.Tensor:
            act()
            return x.clone()

        op.register_fake(lambda x: torch.empty_like(x))
        op.register_autograd(lambda ctx, gradient: gradient)

        def change(x: torch.Tensor) -> torch.Tensor:
            return op(x) if torch.compiler.is_compiling() else x

        return _module(change)

    return make


def _in_step(act: Callable[[], None]) -> Callable[[], Any]:
    """An animal that does ``act`` in every step, hidden from compilers."""

    def make() -> Any:
        import torch

        hidden = torch.compiler.disable(act)  # type: ignore[no-untyped-call]

        def change(x: torch.Tensor) -> torch.Tensor:
            hidden()
            return x

        return _module(change)

    return make


class Countdown:
    """Acts on the n-th call only."""

    def __init__(self, calls: int, act: Callable[[], None]) -> None:
        self.left = calls
        self.act = act

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def _raise() -> None:
    raise RuntimeError("the animal bites")


def _segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang() -> None:
    time.sleep(3600)


def _hang_in_c() -> None:
    import ctypes

    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the GIL


def _ignore_term_and_hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _hang()


def _leave_children() -> None:
    subprocess.Popen(["sleep", "3600"])  # noqa: S607


def _print_garbage() -> None:
    sys.stdout.write('{"ok": {"rounds": []}}\n{"failed": 1}\n' * 1000)
    sys.stdout.buffer.write(os.urandom(1 << 16))
    sys.stderr.buffer.write(b"\x00\xff\x1b[31m" * 1000)
    sys.stdout.flush()


def _close_files() -> None:
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def _change_everything() -> None:
    import random

    import torch

    os.chdir("/")
    os.environ.clear()
    torch.set_num_threads(1)
    torch.manual_seed(random.randrange(1 << 30))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _eat_memory() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1 << 20)) * 64)


def _out_of_memory() -> Any:
    import torch

    return _module(lambda x: x + torch.empty(1 << 50).sum())


def _import_error() -> Any:
    import a_library_that_is_not_installed  # type: ignore[import-not-found]

    return a_library_that_is_not_installed


def _compiler_error() -> Any:
    import torch

    def change(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise RuntimeError("not while compiling")
        return x

    return _module(change)


def _wrong_when_compiled(wrong: Callable[[Any], Any]) -> Callable[[], Any]:
    def make() -> Any:
        import torch

        def change(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = wrong(x) if torch.compiler.is_compiling() else x
            return result

        return _module(change)

    return make


def _nan() -> Any:
    return _module(lambda x: x * float("nan"))


def _different_each_run() -> Any:
    import torch

    calls = iter(range(1, 1 << 30))
    hidden: Callable[[], int] = torch.compiler.disable(lambda: next(calls))  # type: ignore[no-untyped-call]

    def change(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x * hidden()
        return result

    return _module(change)


def _nested() -> Any:
    import dataclasses
    from typing import NamedTuple

    class Pair(NamedTuple):
        first: torch.Tensor
        second: dict[str, Any]

    @dataclasses.dataclass
    class Output:
        pair: Pair
        nothing: None = None

    module = _module(lambda x: Output(Pair(x, {"deep": [x * 2, "text"]})))
    return _workload(module, loss=lambda output, target: _loss(output.pair.first, target))


def _no_tensors() -> Any:
    return _workload(_module(lambda x: "no tensor here"), loss=lambda output, target: 0.0)


def _mutates_inputs() -> Any:
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


ANIMALS: dict[str, Callable[[], Any]] = {
    "tame": lambda: _module(lambda x: x),
    "raises_on_import": _import_error,
    "raises_in_build": lambda: _raise(),
    "raises_in_eager": _in_step(_raise),
    "raises_in_compiler": _compiler_error,
    "raises_in_compiled_step": _compiled_only(_raise),
    "raises_on_20th_compiled_step": lambda: _compiled_only(Countdown(20, _raise))(),
    "segfaults_in_eager": _in_step(_segfault),
    "segfaults_compiled": _compiled_only(_segfault),
    "segfaults_on_20th_compiled_step": lambda: _compiled_only(Countdown(20, _segfault))(),
    "os_exit": _in_step(lambda: os._exit(7)),
    "os_exit_compiled": _compiled_only(lambda: os._exit(7)),
    "sys_exit": _in_step(lambda: sys.exit(7)),
    "hangs_in_build": lambda: _hang(),
    "hangs_in_c_compiled": _compiled_only(_hang_in_c),
    "hangs_compiled": _compiled_only(_hang),
    "ignores_sigterm": _compiled_only(_ignore_term_and_hang),
    "leaves_children": _in_step(_leave_children),
    "prints_garbage": _in_step(_print_garbage),
    "closes_files": lambda: _in_step(Countdown(1, _close_files))(),
    "changes_everything": _in_step(_change_everything),
    "out_of_memory": _out_of_memory,
    "out_of_memory_compiled": _compiled_only(lambda: bytearray(1 << 60).clear()),
    "nan": _nan,
    "nan_when_compiled": _wrong_when_compiled(lambda x: x * float("nan")),
    "wrong_when_compiled": _wrong_when_compiled(lambda x: x * 1.01),
    "wrong_shape_when_compiled": _wrong_when_compiled(lambda x: x[:2]),
    "wrong_dtype_when_compiled": _wrong_when_compiled(lambda x: x.double()),
    "different_each_run": _different_each_run,
    "nested_output": _nested,
    "no_tensors": _no_tensors,
    "mutates_inputs": _mutates_inputs,
    HOSTILE_NAME: lambda: _module(lambda x: x),
}
