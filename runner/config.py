"""Flags become a frozen configuration once, here; below this file nobody sees argparse."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from harness.backends import backend_names
from harness.own_model import is_own_model
from harness.schema import DTYPES, LOSSES, SCALES, Mode, Protocol
from harness.suite_files import suite_names
from runner.batch_sizes import batch_sizes
from runner.errors import UsageError, unknown
from runner.flag_types import seconds

PHASES = ("build", "compile", "measure")
DEFAULT_COMPILERS = ("aot_eager", "inductor", "torchscript")
PARITY_RULES = ("scaled", "field")
DEVICE = re.compile(r"^(cpu|cuda(:\d+)?)$")

# --quick: enough to see that everything works and roughly how fast, not to publish
QUICK: dict[str, Any] = {"min_rounds": 10, "max_rounds": 20, "max_measure_s": 3.0, "precision": 0.05}


class Action(Enum):
    RUN = "run"
    LIST = "list"
    PRINT_COMMANDS = "print commands"
    VISUALIZE = "visualize"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which cases of the suites: exact names, patterns to find, patterns to leave out."""

    only: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    quick: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is asked for in place of the suites' own sizes, losses, configurations and weights."""

    scale: str | None = None  # None: by the device
    batch_size: int | None = None
    batch_sizes: tuple[tuple[str, int], ...] = ()  # by model, from a file
    loss: str = "own"
    config: tuple[str, ...] = ()
    pretrained: bool = False
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    no_skip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a run is: what, with which compilers, under which conditions, how, and where to."""

    suites: tuple[str, ...]
    mode: Mode
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    compilers: tuple[str, ...]
    selection: Selection
    changes: Changes
    protocol: Protocol
    output_dir: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the person asked for. ``config`` is there for all actions that plan."""

    action: Action
    config: RunConfig | None = None
    folder: Path | None = None


def parse_request(options: argparse.Namespace) -> Request:
    """Turns parsed flags into a request. Raises ``UsageError`` naming the flag that is wrong."""
    asked = [
        (Action.VISUALIZE, "--visualize-logs", options.visualize_logs),
        (Action.RESUME, "--resume", options.resume),
        (Action.LIST, "--list", options.list),
        (Action.PRINT_COMMANDS, "--print-run-commands", options.print_run_commands),
    ]
    chosen = [(action, flag) for action, flag, given in asked if given]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0][1]} and {chosen[1][1]} exclude each other; choose one")
    action = chosen[0][0] if chosen else Action.RUN
    if action is Action.VISUALIZE:
        return Request(action=action, folder=Path(options.visualize_logs))
    if action is Action.RESUME:
        return Request(action=action, folder=Path(options.resume))
    return Request(action=action, config=_config(options, mode_required=action is not Action.LIST))


def _config(options: argparse.Namespace, *, mode_required: bool) -> RunConfig:
    selection = Selection(
        only=_listed("--only", options.only),
        filters=_patterns("-k/--filter", options.filter),
        excludes=_patterns("-x/--exclude", options.exclude),
        quick=options.quick,
    )
    return RunConfig(
        suites=_suites(options.suites, options.model),
        mode=_mode(options, mode_required),
        devices=_devices(options.devices),
        dtypes=_dtypes(options),
        compilers=_compilers(options),
        selection=selection,
        changes=_changes(options),
        protocol=_protocol(options),
        output_dir=Path(options.output_dir) if options.output_dir else None,
    )


def _mode(options: argparse.Namespace, required: bool) -> Mode:
    chosen = [mode for mode in Mode if getattr(options, mode.value)]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0].value} and --{chosen[1].value} exclude each other; choose one")
    if not chosen and required:
        raise UsageError("say what a step is: --training, --inference or --generate")
    return chosen[0] if chosen else Mode.TRAINING


def _changes(options: argparse.Namespace) -> Changes:
    for flag, value, known, noun in (
        ("--scale", options.scale, SCALES, "scale"),
        ("--loss", options.loss, LOSSES, "loss"),
    ):
        if value is not None and value not in known:
            raise unknown(flag, value, noun, known)
    for text in options.model_config or ():
        if not re.match(r"^[\w.]+=", text):
            raise UsageError(f"--model-config: {text!r} is not written as key=value")
    if options.batch_size is not None and options.batch_size_file is not None:
        raise UsageError("--batch-size and --batch-size-file exclude each other; choose one")
    if options.pretrained and options.scale not in (None, "full"):
        raise UsageError(f"--pretrained: published weights fit --scale=full only, not {options.scale}")
    if not options.generate:
        for flag, value in (("--prompt-tokens", options.prompt_tokens), ("--new-tokens", options.new_tokens)):
            if value is not None:
                raise UsageError(f"{flag} is for --generate; leave it out, or add --generate")
    return Changes(
        scale=options.scale,
        batch_size=options.batch_size,
        batch_sizes=batch_sizes(Path(options.batch_size_file)) if options.batch_size_file else (),
        loss=options.loss or "own",
        config=tuple(options.model_config or ()),
        pretrained=options.pretrained,
        prompt_tokens=options.prompt_tokens,
        new_tokens=options.new_tokens,
        no_skip=options.no_skip,
    )


def _suites(given: list[str] | None, models: list[str] | None) -> tuple[str, ...]:
    suites = [_own_model(spec) for spec in models or ()]
    for name in _listed("--suites", given) or (() if models else ("tiny_gpt",)):
        if name.endswith(".py"):
            path = Path(name).resolve()
            if not path.is_file():
                raise UsageError(f"--suites: there is no file {name!r}")
            suites.append(str(path))
        elif name in suite_names():
            suites.append(name)
        else:
            raise unknown("--suites", name, "suite", suite_names())
    return tuple(suites)


def _own_model(spec: str) -> str:
    if not is_own_model(spec):
        raise UsageError(f"--model: {spec!r} is not written as package.module:function or file.py:function")
    module, _, function = spec.rpartition(":")
    if not module.endswith(".py"):
        return spec
    path = Path(module).resolve()
    if not path.is_file():
        raise UsageError(f"--model: there is no file {module!r}")
    return f"{path}:{function}"


def _devices(given: list[str] | None) -> tuple[str, ...]:
    devices = _listed("--devices", given) or (("cuda",) if _has_nvidia_device() else ("cpu",))
    for device in devices:
        if not DEVICE.match(device):
            raise unknown("--devices", device, "device", ("cpu", "cuda", "cuda:0"))
    return devices


def _has_nvidia_device() -> bool:
    """Whether the default should be CUDA. A guess from the device node: torch is asked by the worker."""
    return Path("/dev/nvidia0").exists()


def _dtypes(options: argparse.Namespace) -> tuple[str, ...]:
    given = list(_listed("--dtypes", options.dtypes))
    given += [name for name in DTYPES if getattr(options, name)]
    for name in given:
        if name not in DTYPES:
            raise unknown("--dtypes", name, "precision", DTYPES)
    return tuple(dict.fromkeys(given)) or ("float32",)


def _compilers(options: argparse.Namespace) -> tuple[str, ...]:
    given = [("--compilers", name) for name in _listed("--compilers", options.compilers)]
    given += [("--backend", name) for name in _listed("--backend", options.backend)]
    shorthands = {"inductor": options.inductor, "torchscript": options.speedup_ts, "eager": options.nothing}
    given += [("", name) for name, wanted in shorthands.items() if wanted]
    for flag, name in given:
        if name not in backend_names():
            raise unknown(flag, name, "compiler", backend_names())
    return tuple(dict.fromkeys(name for _, name in given)) or DEFAULT_COMPILERS


def _protocol(options: argparse.Namespace) -> Protocol:
    if options.parity is not None and options.parity not in PARITY_RULES:
        raise unknown("--parity", options.parity, "parity rule", PARITY_RULES)
    if options.accuracy and options.performance:
        raise UsageError("--accuracy and --performance exclude each other; leave both out to have both")
    given = {
        "repeat": options.repeat,
        "precision": options.precision,
        "parity": options.parity,
        "seed": options.seed,
        "threads": options.threads,
        "timeout_s": options.timeout,
    }
    protocol = dataclasses.replace(
        Protocol(),
        accuracy=not options.performance,
        performance=not options.accuracy,
        isolate=options.isolate,
        fixed_batch=options.fixed_batch,
        max_memory_bytes=options.max_memory,
        phase_timeouts_s=_phase_timeouts(options.phase_timeout),
        **(QUICK if options.quick else {}),
    )
    return dataclasses.replace(protocol, **{k: v for k, v in given.items() if v is not None})


def _phase_timeouts(given: list[str] | None) -> dict[str, float]:
    """``compile=60`` -> {"compile": 60.0}"""
    found = {}
    for text in given or ():
        phase, _, limit = text.partition("=")
        if phase not in PHASES:
            raise unknown("--phase-timeout", phase, "phase", PHASES)
        found[phase] = seconds("--phase-timeout")(limit)
    return found


def _patterns(flag: str, given: list[str] | None) -> tuple[str, ...]:
    for pattern in given or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{flag}: {pattern!r} is not a regular expression ({error})") from None
    return tuple(given or ())


def _listed(flag: str, given: Iterable[str] | None) -> tuple[str, ...]:
    """``--x=a,b --x=c`` -> (a, b, c), each once, in the order given; a flag without a value is an error."""
    parts = []
    for value in given or ():
        named = [part.strip() for part in value.split(",") if part.strip()]
        if not named:
            raise UsageError(f"{flag}: {value!r} names nothing; give at least one, or leave the flag out")
        parts += named
    return tuple(dict.fromkeys(parts))
