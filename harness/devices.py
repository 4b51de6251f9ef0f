"""Kinds of devices. Only this file knows the differences between ``cpu``, ``cuda`` and ``xpu``.

To add a kind, write a class, add it to ``KINDS`` and test it. The parent uses only names and labels, so
methods import torch themselves.

ROCm's devices are also called ``cuda``. ``xpu`` is untried: nobody has run it yet, and the
environment of its records says so. A method returns None if its kind of device cannot give the value.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from harness.protocol import ON_A_CPU, ON_A_DEVICE, Pace

if TYPE_CHECKING:
    import torch

    from harness.schema import Scalar

PLATFORMS = MappingProxyType({"cuda": "CUDA"})
"""Key of a record's environment (the platform that torch was built for) -> the platform's usual name."""

EXAMPLES = ("cpu", "cuda", "cuda:1")

OUT_OF_MEMORY = (
    *("out of memory", "can't allocate memory"),
    # errors of libraries that do not use torch's allocator
    *("cublas_status_alloc_failed", "cudnn_status_alloc_failed", "cublas_status_not_initialized"),
    "unable to find an engine",  # of cuDNN: no algorithm's workspace fits
)
"""Words, in lower case, of error messages that mean: out of memory on a device or on the host."""


DRIVER_FILES = (
    "dev/nvidia[0-9]*",
    "usr/lib/wsl/lib/libcuda.so*",  # WSL2
    "dev/nvhost-gpu",  # Jetson
    "dev/kfd",  # ROCm
)
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Environment variables that hide devices from torch; "" or -1 hides all of them."""

CYCLES_A_S = 2e9  # of ``torch.cuda._sleep``: at a lower clock it sleeps longer
LEAST_DRIVER = MappingProxyType({"11": "450.80 or newer", "12": "525.60 or newer", "13": "580 or newer"})
"""CUDA's major version -> NVIDIA's driver for Linux that it needs (CUDA's release notes)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device. ``index`` None is the current device of its kind. This base class is the CPU."""

    index: int | None = None

    type: ClassVar[str] = "cpu"
    label: ClassVar[str] = "CPU"
    numbered: ClassVar[bool] = False  # a machine may have several, with numbers
    accelerated: ClassVar[bool] = False  # runs asynchronously to the CPU and has its own memory
    tried: ClassVar[bool] = True
    has_tf32: ClassVar[bool] = False
    has_graphs: ClassVar[bool] = False  # CUDA graphs
    autocast_dtype: ClassVar[str] = "bfloat16"  # the data type of --dtypes=amp
    pace: ClassVar[Pace] = ON_A_CPU

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    @classmethod
    def seems_present(cls) -> bool:
        """A guess without torch, for the default of a command line."""
        return False

    def _module(self) -> Any:
        import torch

        return getattr(torch, self.type, None)

    def torch_device(self) -> torch.device:
        import torch

        return torch.device(str(self))

    def count(self) -> int:
        """The number of devices of this kind that torch finds."""
        return 1

    def why_missing(self) -> str | None:
        """The reason why torch cannot use this device; None if it can."""
        import torch

        with warnings.catch_warnings(record=True) as caught:  # torch gives its reason as a warning
            warnings.simplefilter("always")
            count = self.count()
        if not count:
            reasons = [str(warning.message).partition(". ")[0].strip() for warning in caught]
            more = "; ".join(dict.fromkeys([*reasons, *self._why_none()]))
            return f"torch {torch.__version__} finds no {self.label} device" + (f": {more}" if more else "")
        return f"torch finds {count} {self.label} devices" if (self.index or 0) >= count else None

    def _why_none(self) -> Iterator[str]:
        """Facts on the driver, where torch finds no device."""
        yield from ()

    def why_unusable(self) -> str | None:
        """As ``why_missing``, also after a first operation: torch may have no kernels for a device.

        Initializes the device, so it is for a process of its own.
        """
        why = self.why_missing()
        if why is None:
            try:
                self.open()
            except (RuntimeError, AssertionError) as error:
                why = f"its first operation fails: {' '.join(str(error).split()).partition('. ')[0]}"
        return why

    def model(self) -> str | None:
        """The vendor's name of the device; None for a CPU, whose name comes from the operating system."""
        return None

    def facts(self) -> dict[str, Scalar]:
        """The facts that this kind of device adds to the environment of a record."""
        return {
            **versions(),
            "cudnn": None,
            "driver": None,
            **({} if self.tried else {"device_untried": f"nobody has tried {self.type} yet: check by hand"}),
        }

    def make_current(self) -> None:
        """Makes this device the default of its kind: ``"cuda"`` then means it."""

    def synchronize(self) -> None:
        """Waits until all submitted work is done."""

    def open(self) -> None:
        """Initializes the device in this process by a first operation. Raises torch's error if it cannot.

        CUDA cannot be initialized in a fork of a process that has used the driver.
        """
        import torch

        torch.ones(1, device=self.torch_device()).add_(1)
        self.synchronize()

    def healthy(self) -> bool:
        """Whether the device still works in this process. After some errors every later call fails."""
        try:
            self.open()
        except memory_errors():
            return True  # full, which is no damage
        except (RuntimeError, AssertionError):  # the second: torch was built without this kind
            return False
        return True

    def busy_s(self, step: Callable[[], object], steps: int, sleep_s: float) -> float | None:  # noqa: ARG002
        """Seconds that the device works on so many steps, if it need not wait for the host.

        It sleeps first for ``sleep_s``, while the host submits. None if this kind cannot tell.
        """
        return None

    def begin_peak(self) -> int | None:
        """Waits, resets the peak, and returns the bytes that tensors hold now."""
        return None

    def peak_bytes(self) -> int | None:
        """The largest number of bytes that tensors held at one time since ``begin_peak``."""
        return None

    def pool_bytes(self) -> int | None:
        """Bytes in private memory pools. CUDA graphs keep their intermediate results there."""
        return None

    def allocator_counts(self) -> dict[str, int]:
        """How often the allocator has freed its cache to find memory, and has asked the driver for memory."""
        return {}

    def empty_cache(self) -> None:
        """Frees memory that the allocator caches."""
        if self.accelerated:
            self._module().empty_cache()

    def profiler_activity(self) -> str | None:
        """The name of the torch.profiler activity that records its kernels; None for a CPU."""
        return None

    def in_use(self) -> bool:
        """Whether this process has initialized devices of this kind."""
        return False

    def generator_state(self) -> torch.Tensor | None:
        """The state of its random number generator; None for a CPU, which uses torch's default generator."""
        return None

    def remember(self) -> Callable[[], None]:
        """A function that restores the generators and the current device of now.

        A device that is not in use is not initialized.
        """
        return lambda: None


class Cuda(Device):
    """NVIDIA's devices, and AMD's devices with a ROCm build of torch."""

    __slots__ = ()
    type, label = "cuda", "CUDA"
    numbered = accelerated = has_tf32 = has_graphs = True
    pace = ON_A_DEVICE
    autocast_dtype = "float16"

    @classmethod
    def seems_present(cls, root: Path = Path("/")) -> bool:
        """Whether a driver has made the files of a device, unless the user hides all devices.

        A container may have the file of GPU 3 alone. WSL2 has no file for each device, Jetson has others,
        and AMD's driver has one for all devices.
        """
        hidden = [os.environ[name] for name in HIDING if name in os.environ]
        if any(value.strip() in ("", "-1") for value in hidden):
            return False
        return any(next(root.glob(pattern), None) is not None for pattern in DRIVER_FILES)

    def _why_none(self) -> Iterator[str]:
        import torch

        driver, built_for = nvidia_driver(), str(torch.version.cuda or "").partition(".")[0]
        if driver is not None and built_for in LEAST_DRIVER:
            yield f"the driver is {driver}, and CUDA {torch.version.cuda} needs {LEAST_DRIVER[built_for]}"

    def facts(self) -> dict[str, Scalar]:
        import torch

        version: Callable[[], int | None] = torch.backends.cudnn.version
        properties = self._module().get_device_properties(self.torch_device())
        free, total = self._module().mem_get_info(self.torch_device())
        return {
            **Device.facts(self),
            "cudnn": version(),
            "driver": nvidia_driver(),
            "gpu_capability": f"{properties.major}.{properties.minor}",
            "gpu_multiprocessors": int(properties.multi_processor_count),
            "gpu_memory_bytes": int(total),
            "gpu_memory_free_bytes": int(free),  # beside the job's weights
        }

    def busy_s(self, step: Callable[[], object], steps: int, sleep_s: float) -> float | None:
        module = self._module()
        begin, end = (module.Event(enable_timing=True) for _ in range(2))
        module._sleep(int(sleep_s * CYCLES_A_S))  # noqa: SLF001 - torch has no public function for it
        begin.record()
        for _ in range(steps):
            step()
        waited = begin.query()  # the sleep has ended: the step waits for the device, or its queue is full
        end.record()
        self.synchronize()
        return None if waited else float(begin.elapsed_time(end)) / 1e3

    def pool_bytes(self) -> int | None:
        device = self.torch_device()
        number = self._module().current_device() if device.index is None else device.index
        segments = [part for part in self._module().memory_snapshot() if part["device"] == number]
        if any("segment_pool_id" not in part for part in segments):
            return None  # torch before 2.1 does not name the pools
        return sum(int(p["total_size"]) for p in segments if tuple(p["segment_pool_id"]) != (0, 0))

    def count(self) -> int:
        return int(self._module().device_count()) if self._module().is_available() else 0

    def model(self) -> str | None:
        return str(self._module().get_device_name(self.torch_device()))

    def make_current(self) -> None:
        if self.index is not None:
            self._module().set_device(self.torch_device())

    def synchronize(self) -> None:
        self._module().synchronize(self.torch_device())

    def begin_peak(self) -> int | None:
        self.synchronize()
        self._module().reset_peak_memory_stats(self.torch_device())
        return int(self._module().memory_allocated(self.torch_device()))

    def peak_bytes(self) -> int | None:
        self.synchronize()
        return int(self._module().max_memory_allocated(self.torch_device()))

    def allocator_counts(self) -> dict[str, int]:
        names = {"allocator_retries": "num_alloc_retries", "device_allocations": "num_device_alloc"}
        stats = self._module().memory_stats(self.torch_device())
        return {name: int(stats[key]) for name, key in names.items() if key in stats}

    def profiler_activity(self) -> str | None:
        return self.type.upper()

    def in_use(self) -> bool:
        return bool(self._module().is_initialized())

    def generator_state(self) -> torch.Tensor | None:
        state: torch.Tensor = self._module().get_rng_state(self.torch_device())
        return state

    def remember(self) -> Callable[[], None]:
        import torch

        module, seed = self._module(), torch.initial_seed()
        if not self.in_use():
            return lambda: module.manual_seed_all(seed)  # the seed that it will start with
        current, states = module.current_device(), module.get_rng_state_all()

        def restore() -> None:
            module.set_rng_state_all(states)
            module.set_device(current)

        return restore


class Accelerator(Device):
    """Any other accelerator, by ``torch.accelerator`` (torch 2.6). It tells no peak memory and no kernels."""

    __slots__ = ()
    accelerated = True
    pace = ON_A_DEVICE
    tried = False

    def count(self) -> int:
        import torch

        common: Any = getattr(torch, "accelerator", None)
        here = common is not None and common.is_available()
        return int(here and common.current_accelerator().type == self.type)

    def _why_none(self) -> Iterator[str]:
        import torch

        if not hasattr(torch, "accelerator"):
            yield "it needs torch 2.6 or later"

    def synchronize(self) -> None:
        import torch

        torch.accelerator.synchronize()

    def generator_state(self) -> torch.Tensor | None:
        state: torch.Tensor = self._module().get_rng_state()
        return state

    def remember(self) -> Callable[[], None]:
        if not self.count():
            return lambda: None
        module, state = self._module(), self.generator_state()
        return lambda: module.set_rng_state(state)


class Xpu(Accelerator):
    """Intel's device."""

    __slots__ = ()
    type, label = "xpu", "XPU"


KINDS: tuple[type[Device], ...] = (Device, Cuda, Xpu)
TRIED = tuple(kind.type for kind in KINDS if kind.tried)
UNTRIED = tuple(kind.type for kind in KINDS if not kind.tried)
CPU = Device()


def named(text: str) -> Device:
    """The device called ``cuda`` or ``cuda:1``. ``ValueError`` for any other text."""
    name, colon, number = text.partition(":")
    for kind in KINDS:
        plain = not colon or (kind.numbered and number.isascii() and number.isdecimal())
        if kind.type == name and plain:
            return kind(int(number) if colon else None)
    raise ValueError(f"there is no device called {text!r}; devices are {', '.join((*TRIED, *UNTRIED))}")


def of(device: torch.device | str) -> Device:
    """The device with this name in torch. An unknown kind, such as ``meta``, is treated as a CPU."""
    name, _, number = str(device).partition(":")
    kind = next((kind for kind in KINDS if kind.type == name), Device)
    return kind(int(number)) if number and kind.numbered else kind()


def type_of(text: str) -> str:
    """``cuda:1`` -> ``cuda``. Accepts any name, because records may name devices of an unknown kind."""
    return text.partition(":")[0]


def twice(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Two names of the same device, such as ``cuda`` and ``cuda:0``; None if all devices differ."""
    seen: dict[tuple[str, int], str] = {}
    for name in names:
        device = named(name)
        earlier = seen.setdefault((device.type, device.index or 0), name)
        if earlier != name:
            return earlier, name
    return None


def likely() -> str:
    """The kind that this machine seems to have, guessed without torch."""
    return next((kind.type for kind in KINDS if kind.seems_present()), CPU.type)


def best() -> str:
    """The first tried accelerator that torch can use here; the CPU if there is none."""
    usable = (kind.type for kind in KINDS if kind.tried and kind.accelerated and kind().count())
    return next(usable, CPU.type)


def counts() -> dict[str, int]:
    """The number of devices of each accelerated kind that torch finds."""
    return {kind.type: kind().count() for kind in KINDS if kind.accelerated}


def versions() -> dict[str, Scalar]:
    """The platform versions that torch was built for. The key ``hip`` exists only for ROCm."""
    import torch

    rocm = getattr(torch.version, "hip", None)
    return {"cuda": torch.version.cuda, **({"hip": rocm} if rocm else {})}


def attention_kernels() -> list[str]:
    """The fused kernels of scaled_dot_product_attention that torch may choose, such as flash."""
    import torch

    cuda: Any = torch.backends.cuda  # its functions have no types
    allowed = {"flash": cuda.flash_sdp_enabled(), "memory-efficient": cuda.mem_efficient_sdp_enabled()}
    return [name for name, enabled in allowed.items() if enabled]


def memory_errors() -> tuple[type[BaseException], ...]:
    """The exceptions that mean: no memory left, on a device or on the host."""
    import torch

    return (MemoryError, torch.cuda.OutOfMemoryError)


def remember() -> Callable[[], None]:
    """A function that restores torch's generators and the current devices of now."""
    import torch

    state = torch.random.get_rng_state()
    restores = [kind().remember() for kind in KINDS]

    def restore() -> None:
        torch.random.set_rng_state(state)
        for put_back in restores:
            put_back()

    return restore


def nvidia_driver(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of NVIDIA's kernel driver; None if there is none or its file has no version."""
    if not version.exists():
        return None
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", version.read_text(errors="replace"))
    return match[0] if match else None
