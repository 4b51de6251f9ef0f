"""A variant without Python: the same model and loop in C++, on the libtorch of the torch wheel.

The program is built on demand with the system's compiler and kept in the cache folder. A line on its
standard input says which steps to run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from harness.devices import of
from runner.plan.environments.code_folder import cache_root
from studies.learners import WEIGHT_DECAY, Lesson
from suites.models.nano_gpt import NanoGPT

SOURCE = Path(__file__).parent / "cpp" / "train.cpp"
BUILD_S = 900.0
ENDING_S = 10.0
LONGEST_REASON = 500  # characters of an error message


class NativeLearner:
    """Trains in a process of its own, which ``close`` ends. Starts with the weights of ``module``."""

    def __init__(
        self, name: str, module: NanoGPT, lesson: Lesson, *, device: str, learning_rate: float, threads: int
    ) -> None:
        self._name = name
        self._module, self._lesson = module, lesson
        self._device, self._rate, self._threads = device, learning_rate, threads
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def name(self) -> str:
        return self._name

    def prepare(self) -> None:
        """Builds the program if needed and starts it. ``RuntimeError`` with the compiler's message."""
        program = build(self._device)
        self._folder = tempfile.TemporaryDirectory(prefix="study-native-")
        write_lesson(Path(self._folder.name), self._module, self._lesson)
        with (Path(self._folder.name) / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [str(program), self._folder.name, *self._arguments()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answer("ready")

    def _arguments(self) -> list[str]:
        module, lesson = self._module, self._lesson
        vocabulary, width = module.wte.weight.shape
        heads = int(module.get_submodule("h.0.attn").n_head)  # type: ignore[arg-type]
        numbers: tuple[float, ...] = (
            *(self._threads, self._rate, WEIGHT_DECAY, len(module.h), heads, width),
            *(module.wpe.weight.shape[0], vocabulary, lesson.block, lesson.batches.shape[1]),
        )
        return [self._device, *map(repr, numbers)]

    def run(self, first: int, steps: int) -> Sequence[float]:
        return self._ask(f"run {first} {steps}", "losses")

    def evaluate(self) -> tuple[float, float]:
        train, valid = self._ask("evaluate", "evaluation")
        return train, valid

    def _ask(self, request: str, kind: str) -> list[float]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the program has ended; _answer reports the reason
        return self._answer(kind)

    def _answer(self, kind: str) -> list[float]:
        assert self._process is not None
        assert self._process.stdout is not None
        word, *numbers = self._process.stdout.readline().split() or [""]
        if word != kind:
            raise RuntimeError(f"the C++ program ended: {self._errors()}")
        return [float(number) for number in numbers]

    def _errors(self) -> str:
        assert self._folder is not None
        text = (Path(self._folder.name) / "errors").read_text(errors="replace").strip()
        return text[-LONGEST_REASON:] or "without a message"

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                process.communicate("quit\n", timeout=ENDING_S)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def write_lesson(folder: Path, module: nn.Module, lesson: Lesson) -> None:
    """Writes the files that the program reads. The head of its source describes them."""
    weights = torch.cat([p.detach().float().flatten() for p in module.parameters()])
    for name, values in {
        "weights": weights,
        "tokens": lesson.tokens,
        "batches": lesson.batches,
        "train": lesson.train_windows,
        "valid": lesson.valid_windows,
    }.items():
        (folder / name).write_bytes(values.contiguous().numpy().tobytes())


def build(device: str, source: Path = SOURCE) -> Path:
    """The program for this torch; builds it if needed. ``RuntimeError`` if the build fails."""
    compiler = find_compiler()
    command = [compiler, *flags(device)]
    content = source.read_bytes()
    key = hashlib.sha256(content + repr(command).encode() + torch.__version__.encode()).hexdigest()[:16]
    program = cache_root() / f"study-train-{key}"
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{program.name}.{os.getpid()}.partial")
    try:
        done = subprocess.run(
            [compiler, str(source), "-o", str(partial), *flags(device)],
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{compiler} cannot build {source.name}: {done.stderr[:LONGEST_REASON]}")
        partial.replace(program)
    finally:
        partial.unlink(missing_ok=True)
    return program


def find_compiler() -> str:
    """The C++ compiler, first that of CXX. ``RuntimeError`` if there is none."""
    for name in (os.environ.get("CXX", "").split()[:1] or [""])[0], "g++", "clang++", "c++":
        if name and shutil.which(name):
            return name
    raise RuntimeError("no C++ compiler is installed; install g++ or clang++, or set CXX")


def flags(device: str) -> list[str]:
    """Compiler flags: folders of headers and libraries, and the ABI of this torch."""
    root = Path(torch.__file__).parent
    libraries = root / "lib"
    names = [
        "torch",
        "torch_cpu",
        "c10",
        *([f"torch_{device}", f"c10_{device}"] if of(device).accelerated else []),
    ]
    return [
        *("-O2", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
        *(f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"),
        # some libraries only register kernels when they are loaded; the linker must keep them
        *(f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed"),
        *(f"-l{name}" for name in names),
    ]
