"""An accelerator that exists in the tests only, with the manners of a GPU.

``harness.devices`` takes it for the device called ``cpu``: tensors are torch's own on the CPU, and their
values are right at once. Everything else is as on a GPU:

- Work is submitted and takes time later. The clock moves only where the host waits (and a little for each
  submission), so a time that was read without waiting is wrong by all of the work.
- Memory has a capacity, a cache and private pools. The counters move when the device gets there.
- An error is reported at the next wait, and stays: every later call fails.
- A process that was forked after the device was opened cannot use it.
- A replay of CUDA graphs allocates nothing and overwrites the results of the replay before.
- With a power limit (``limit_w``), the clock falls while the mean power of half a second is above it.

A *mutant* of the program is the program with one wait left out: ``deaf_to`` names the line.
"""

from __future__ import annotations

import ast
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness import devices
from harness.program import Compiled, Program
from harness.schema import Job, Protocol
from harness.tensors import named_tensors
from harness.timing.step import Variant
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job

ROOT = Path(__file__).parents[1]
GOVERNED_S = 0.5
LAUNCH_S = 1e-6  # the host's time for a submission
WATTS = 100.0
ILLEGAL = "CUDA error: an illegal memory access was encountered"

Place = tuple[str, int]
"""File and line of a call that waits."""


class Accelerator:
    """The device."""

    def __init__(self) -> None:
        self.capacity = 1 << 40
        self.now = 0.0  # the host's clock (s)
        self.limit_w = 0.0  # 0: none
        self.deaf_to: Place | None = None
        self.waited: set[Place] = set()
        self.restart()

    def __deepcopy__(self, memo: object) -> Accelerator:
        return self

    def restart(self) -> None:
        """What a new process finds: a sound device with empty memory."""
        self.opened_by: int | None = None
        self.error = ""
        self.free_at = 0.0  # when the device will have finished all submitted work
        self.worked_s = 0.0  # seconds of work that the host knows to be finished
        self.held = self.cached = self.pools = 0  # bytes, as the allocator plans
        self.mean_w = 0.0  # of the last half second
        self.retries = self.driver_calls = 0
        self.allocated = self.peak = 0  # bytes, as the device has come to
        self._submitted_s = 0.0
        self._moves: list[int] = []  # allocations and releases that the device has not come to

    # -- work ---------------------------------------------------------------------
    def submit(self, seconds: float, watts: float = WATTS) -> None:
        """``seconds`` at the full clock."""
        if self.error:
            raise RuntimeError(self.error)
        self.now += LAUNCH_S
        idle_s = max(0.0, self.now - self.free_at)
        self.mean_w *= math.exp(-idle_s / GOVERNED_S)
        seconds /= self.clock_share()
        self.mean_w += (watts - self.mean_w) * (1 - math.exp(-seconds / GOVERNED_S))
        self.free_at = max(self.now, self.free_at) + seconds
        self._submitted_s += seconds

    def clock_share(self) -> float:
        """The clock as a share of the highest."""
        return min(1.0, self.limit_w / self.mean_w) if self.limit_w and self.mean_w else 1.0

    def clock_mhz(self) -> int:
        return round(2000 * self.clock_share())

    def power_w(self) -> float:
        return self.mean_w

    def throttle_reasons(self) -> tuple[str, ...]:
        return ("power cap",) if self.clock_share() < 1 else ()

    def fail(self, error: str = ILLEGAL) -> None:
        """The submitted work ends in an error, which the host does not know yet."""
        self.error = error

    def wait(self) -> None:
        place = _place()
        self.waited.add(place)
        if place == self.deaf_to:
            return
        if self.opened_by is None:
            self.opened_by = os.getpid()
        if self.opened_by != os.getpid():
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        self.now = max(self.now, self.free_at)
        self.worked_s = self._submitted_s
        for size in self._moves:
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
        self._moves.clear()
        if self.error:
            raise RuntimeError(self.error)

    def clock(self) -> float:
        return self.now

    def energy_j(self) -> float:
        return WATTS * self.worked_s

    # -- memory -------------------------------------------------------------------
    def allocate(self, size: int) -> None:
        if size > self.cached:
            self.driver_calls += 1
            if self.held + self.cached + self.pools + size > self.capacity:
                self.retries += 1
                self.cached = 0
            if self.held + self.pools + size > self.capacity:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
        else:
            self.cached -= size
        self.held += size
        self._moves.append(size)

    def release(self, size: int) -> None:
        self.held -= size
        self.cached += size
        self._moves.append(-size)

    def free_bytes(self) -> int:
        return self.capacity - self.held - self.cached - self.pools


@dataclass
class Event:
    """Of ``torch.cuda``: the time at which the device has finished what was submitted before."""

    machine: Accelerator
    at: float = 0.0

    def record(self) -> None:
        self.at = max(self.machine.now, self.machine.free_at)

    def query(self) -> bool:
        return self.machine.now >= self.at

    def elapsed_time(self, later: Event) -> float:
        assert self.machine.now >= later.at, "nobody has waited for it"
        return (later.at - self.at) * 1e3


def as_torch_cuda(machine: Accelerator) -> SimpleNamespace:
    """As far as ``harness.devices`` uses it."""
    properties = SimpleNamespace(major=8, minor=0, multi_processor_count=100)
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: machine.opened_by is not None,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=lambda device: None,
        get_device_name=lambda device: "Fake accelerator",
        get_device_properties=lambda device: properties,
        synchronize=lambda device: machine.wait(),
        Event=lambda enable_timing: Event(machine),
        _sleep=lambda cycles: machine.submit(cycles / 2e9),
        mem_get_info=lambda device: (machine.free_bytes(), machine.capacity),
        reset_peak_memory_stats=lambda device: setattr(machine, "peak", machine.allocated),
        memory_allocated=lambda device: machine.allocated,
        max_memory_allocated=lambda device: machine.peak,
        memory_stats=lambda device: {
            "num_alloc_retries": machine.retries,
            "num_device_alloc": machine.driver_calls,
        },
        memory_snapshot=lambda: [
            {"device": 0, "segment_pool_id": (0, 0), "total_size": machine.held + machine.cached},
            {"device": 0, "segment_pool_id": (0, 1), "total_size": machine.pools},
        ],
        empty_cache=lambda: setattr(machine, "cached", 0),
        get_rng_state=lambda device=None: torch.get_rng_state(),
        get_rng_state_all=lambda: [torch.get_rng_state()],
        set_rng_state_all=lambda states: torch.set_rng_state(states[0]),
    )


def _place() -> Place:
    """The line that waits. Functions called ``synchronize`` only pass the call on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename != __file__ and code.co_name != "synchronize":
            return os.path.relpath(code.co_filename, ROOT), frame.f_lineno
        frame = frame.f_back
    raise AssertionError("nobody waits")


def waiting_places() -> dict[Place, str]:
    """Every call of something called ``synchronize`` -> the function that it is in."""
    functions: dict[Place, str] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(text)) if "synchronize(" in text else ():
            if not isinstance(function, ast.FunctionDef) or function.name == "synchronize":
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call):
                    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                    if name in ("synchronize", "_synchronize"):
                        functions[str(path.relative_to(ROOT)), call.lineno] = function.name
    return functions


@contextmanager
def in_place_of_the_cpu(machine: Accelerator) -> Iterator[Accelerator]:
    """``harness.devices`` takes ``machine`` for the device ``cpu``; ``time.perf_counter`` is its clock."""
    import time

    class Fake(devices.Cuda):
        __slots__ = ()
        type, label = "cpu", "fake"
        numbered = False
        pace = replace(devices.Cuda.pace, pools=1)  # tensors are small

        def _module(self) -> Any:
            return as_torch_cuda(machine)

    seed = torch.manual_seed

    def seeding(number: int) -> Any:
        machine.submit(0.002)  # a kernel that nobody waits for
        return seed(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "KINDS", (Fake, devices.Xpu))
        patch.setattr(time, "perf_counter", machine.clock)
        patch.setattr(torch, "manual_seed", seeding)
        yield machine


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, an operation with one of these names takes the device so many seconds."""

    def __init__(self, machine: Accelerator, seconds: Mapping[str, Callable[[Any], float]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._machine = machine
        self._seconds = seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        takes = self._seconds.get(func.__name__.split(".")[0])
        if takes is not None:
            self._machine.submit(takes(args))
        return func(*args, **(kwargs or {}))


# -- models and compilers ------------------------------------------------------------------
class Block:
    """Memory of the device that lives as long as this object. A copy of it takes time."""

    def __init__(self, machine: Accelerator, size: int) -> None:
        self.machine, self.size = machine, 0
        machine.allocate(size)
        self.size = size

    def __deepcopy__(self, memo: object) -> Block:
        self.machine.submit(0.005)
        return Block(self.machine, self.size)

    def __del__(self) -> None:
        if self.size:
            self.machine.release(self.size)


class Busy(torch.autograd.Function):
    """Passes its input on, and takes time and memory in the forward and in the backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, model: Model) -> torch.Tensor:
        context.model = model
        context.kept = model.work(model.forward_s, model.host_s[0])
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        context.model.work(context.model.backward_s, context.model.host_s[1])
        context.kept = None
        return gradients[0], None


class Model(nn.Module):
    """A linear layer that keeps ``weights`` bytes, and in a step needs ``activations`` bytes."""

    def __init__(
        self,
        machine: Accelerator,
        *,
        forward_s: float = 0.010,
        backward_s: float = 0.020,
        weights: int = 100,
        activations: int = 1000,
        host_s: tuple[float, float] = (0.0, 0.0),
        watts: float = WATTS,
    ) -> None:
        super().__init__()
        self.machine = machine
        self.linear = nn.Linear(8, 8)
        self.forward_s, self.backward_s = forward_s, backward_s
        self.activations = activations
        self.host_s = host_s  # of forward and backward
        self.watts = watts
        self.weights = Block(machine, weights) if weights else None

    def work(self, seconds: float, host_s: float) -> Block | None:
        self.machine.now += host_s
        self.machine.submit(seconds, self.watts)
        return Block(self.machine, self.activations) if self.activations else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = Busy.apply(self.linear(x), self)  # type: ignore[no-untyped-call]
        return output


def times(machine: Accelerator, factor: float, compile_s: float = 3.0) -> Callable[[Program], Compiled]:
    """A compiler: the step takes ``factor`` of eager's time. It takes the host and the device some time."""

    def compile_it(program: Program) -> Compiled:
        machine.now += compile_s - 1.0
        machine.submit(1.0)  # autotuning
        model: Any = program.module
        model.forward_s *= factor
        model.backward_s *= factor
        return Compiled(forward=program.forward(), region="forward+loss", compiler_calls=lambda: 1)

    return compile_it


def replaying(
    machine: Accelerator, pool: int = 5000, spoil: Callable[[int], float] = lambda _: 1.0
) -> Callable[[Program], Compiled]:
    """A compiler with CUDA graphs. Replay n multiplies the gradients by ``spoil(n)``, for n from 0 up."""

    def compile_it(program: Program) -> Compiled:
        eager, model = program.forward(), program.module
        statics: dict[str, torch.Tensor] = {}
        replays = 0

        def keep(name: str, tensor: torch.Tensor) -> None:
            """Puts the values where those of the replay before are, as a graph does."""
            place = statics.setdefault(name, tensor.detach().clone())
            place.copy_(tensor.detach())
            tensor.data = place

        def forward(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
            nonlocal replays
            if not replays:
                Block(machine, pool)  # of the capture; what it releases stays in a segment of the pool
                machine.pools += 4 * pool
                machine.driver_calls += 1
            number, replays = replays, replays + 1
            own: Any = model
            own.activations = 0
            loss, output = eager(args, kwargs, target)
            for name, tensor in named_tensors((loss, output), "made"):
                keep(name, tensor)
            if loss is not None:
                plain: Callable[..., None] = torch.Tensor.backward

                def backward() -> None:
                    plain(loss)
                    for name, parameter in model.named_parameters():
                        assert parameter.grad is not None
                        parameter.grad.mul_(spoil(number))
                        keep(f"gradient {name}", parameter.grad)

                loss.backward = backward
            return loss, output

        return Compiled(forward=forward, region="forward+loss", compiler_calls=lambda: 1, replays=True)

    return compile_it


# -- sessions ------------------------------------------------------------
Compilers = Mapping[str, Callable[[Program], Compiled]]


def job(*candidates: str, **protocol: Any) -> Job:
    settings = Protocol(**{"min_sample_s": 0.0, "threads": 1, **protocol})
    return make_job("m", suite="none", batch_size=4, candidates=candidates, protocol=settings)


def built(machine: Accelerator, **sizes: Any) -> Workload:
    model = Model(machine, **sizes)
    return Workload(module=model, args=(torch.ones(4, 8),), loss=lambda output, _: output.square().mean())


def opened(
    machine: Accelerator, compilers: Compilers, work: Workload | None = None, **protocol: Any
) -> Session:
    """A session whose eager has run."""
    ready = Session(job(*compilers, **protocol), lambda _: None, lambda _: work or built(machine), compilers)
    ready.open()
    return ready


def prepared(
    machine: Accelerator, compilers: Compilers, work: Workload | None = None, **protocol: Any
) -> Session:
    """The same, with every candidate compiled and checked."""
    ready = opened(machine, compilers, work, **protocol)
    for name in compilers:
        ready.prepare(name)
    return ready


def before_each_step(variant: Variant, act: Callable[[], object]) -> None:
    step = variant.step

    def acting() -> Any:
        act()
        return step()

    variant.step = acting


def about(value: float) -> Any:
    """``value``, and the launches."""
    return pytest.approx(value, rel=1e-3)
