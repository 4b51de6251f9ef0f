"""Which compilers were asked for, with which options, and whether they can be used here."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.backends import backend_names
from harness.schema import CompilerOptions, Job
from runner.errors import UsageError, unknown

DEFAULT_COMPILERS = ("aot_eager", "inductor", "torchscript")
ALWAYS_HERE = (*DEFAULT_COMPILERS, "eager")  # every torch has them, for every mode and device
SHORTHANDS = (
    ("inductor", "inductor"),
    ("speedup_ts", "torchscript"),
    ("nothing", "eager"),
    ("speedup_dynamo_ts", "dynamo_ts"),
    ("accuracy_aot_ts_mincut", "aot_ts_mincut"),
    ("export_aot_inductor", "aot_inductor"),
)
"""Flags of PyTorch's own harness, and the compilers that they stand for."""

COMPILE_MODES = {
    "default": "inductor",
    "reduce-overhead": "inductor_reduce_overhead",
    "max-autotune": "inductor_max_autotune",
    "max-autotune-no-cudagraphs": "inductor_max_autotune_no_cudagraphs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What a worker's interpreter says of one compiler."""

    what: str
    why_not: str | None
    modes: tuple[str, ...]  # () for all

    def refusal(self, name: str, mode: str) -> str | None:
        """A sentence why it cannot compile a step of that mode here, or None when it can."""
        if self.why_not is not None:
            return f"{name} cannot be used here: {self.why_not}"
        if self.modes and mode not in self.modes:
            return f"{name} compiles {' and '.join(self.modes)} only"
        return None


Ask = Callable[[str, Sequence[str]], Mapping[str, Usable]]
"""``ask(device type, names)``: what a worker's interpreter says of these compilers (of all: no names)."""


def compilers_asked(
    options: argparse.Namespace, listed: Callable[[str, Iterable[str] | None], tuple[str, ...]]
) -> tuple[str, ...]:
    """The candidates in the order given, each once. ``UsageError`` for a name without a file.

    ``--backend`` takes any name: torch knows compilers that have none here.
    """
    given = list(listed("--compilers", options.compilers))
    for name in given:
        if name not in backend_names():
            raise unknown("--compilers", name, "compiler", backend_names())
    given += listed("--backend", options.backend)
    given += [name for flag, name in SHORTHANDS if getattr(options, flag)]
    mode = options.inductor_compile_mode
    if mode is not None:
        if mode not in COMPILE_MODES:
            raise unknown("--inductor-compile-mode", mode, "mode", COMPILE_MODES)
        given = [COMPILE_MODES[mode] if name == "inductor" else name for name in given]
    return tuple(dict.fromkeys(given)) or DEFAULT_COMPILERS


def options_asked(options: argparse.Namespace) -> CompilerOptions:
    """``--inductor-config`` and its like. ``UsageError`` for what contradicts itself."""
    for text in options.inductor_config or ():
        if not re.match(r"^[\w.]+=", text):
            raise UsageError(f"--inductor-config: {text!r} is not written as key=value")
    for first, second in (("nnc", "nvfuser"), ("dynamic_shapes", "dynamic_batch_only")):
        if getattr(options, first) and getattr(options, second):
            flags = f"--{first} and --{second}".replace("_", "-")
            raise UsageError(f"{flags} exclude each other; choose one")
    if options.freezing and options.training:
        raise UsageError("--freezing takes the weights for constants: it is for --inference")
    return CompilerOptions(
        inductor_config=tuple(options.inductor_config or ()),
        dynamic_shapes=options.dynamic_shapes,
        dynamic_batch=options.dynamic_batch_only,
        freezing=options.freezing,
        fuser="nnc" if options.nnc else "nvfuser" if options.nvfuser else None,
        nopython=options.nopython,
    )


def with_availability(jobs: tuple[Job, ...], ask: Ask, *, skip: bool) -> tuple[Job, ...]:
    """The jobs, knowing which of their candidates cannot be used here and why.

    ``UsageError`` for the first that cannot, unless they are to be skipped.
    Costs a question only when a compiler was chosen that may be missing.
    """
    asked: dict[str, Mapping[str, Usable]] = {}
    known = []
    for job in jobs:
        device_type = job.device.split(":")[0]
        doubtful = tuple(name for name in job.candidates if name not in ALWAYS_HERE)
        if doubtful and device_type not in asked:
            asked[device_type] = ask(device_type, doubtful)
        refused = {}
        for name in doubtful:
            if name not in asked[device_type]:
                raise unknown("--backend", name, "compiler", backend_names())
            found = asked[device_type][name]
            if name not in backend_names() and found.why_not is not None and not skip:
                raise UsageError(f"--backend: {found.why_not}")
            why = found.refusal(name, job.case.mode.value)
            if why is not None and not skip:
                raise UsageError(f"--compilers: {why}; leave it out, or add --skip-unavailable")
            if why is not None:
                refused[name] = why
        known.append(dataclasses.replace(job, unavailable=refused) if refused else job)
    return tuple(known)
