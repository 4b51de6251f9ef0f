"""Flags become a frozen configuration once, here; below this file nobody sees argparse."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from harness.own_model import is_own_model
from harness.schema import DTYPES, LOSSES, SCALES, CompilerOptions, Extras, Mode, Protocol
from harness.suite_files import suite_names
from runner.batch_sizes import batch_sizes
from runner.changes import asked as changes
from runner.compilers import compilers_asked, options_asked
from runner.environments.spec import Asked, environments_asked
from runner.errors import UsageError, unknown
from runner.extras import extras_asked
from runner.flag_types import seconds
from runner.formats import formats_asked
from runner.history import asked as history
from runner.partition import Partition, partition_asked

PHASES = ("build", "compile", "measure")
PARITY_RULES = ("scaled", "field")
EXECUTORS = ("local", "ray")
DEVICE = re.compile(r"^(cpu|cuda(:\d+)?)$")

# --quick: enough to see that everything works and roughly how fast, not to publish
QUICK: dict[str, Any] = {"min_rounds": 10, "max_rounds": 20, "max_measure_s": 3.0, "precision": 0.05}


class Action(Enum):
    RUN = "run"
    LIST = "list"
    LIST_COMPILERS = "list compilers"
    PRINT_COMMANDS = "print commands"
    VISUALIZE = "visualize"
    RESUME = "resume"
    MERGE = "merge"
    DOCTOR = "doctor"
    INDEX = "index"
    COMPARE = "compare"
    UPDATE_EXPECTED = "update expected"
    HISTORY = "history"
    BISECT = "bisect"


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
    modes: tuple[Mode, ...]
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    compilers: tuple[str, ...]
    selection: Selection
    options: CompilerOptions = field(default_factory=CompilerOptions)
    baseline_dtype: str | None = None
    skip_unavailable: bool = False
    changes: Changes
    protocol: Protocol
    output_dir: Path | None
    partition: Partition | None = None  # None: the whole plan
    extras: Extras = field(default_factory=Extras)
    environments: tuple[Asked, ...] = ()  # the reference first; (): the runner's own alone
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What runs the jobs: this machine, or a Ray cluster (None: RAY_ADDRESS, or one started here)."""

    executor: str = "local"
    ray_address: str | None = None
    fork_server: bool = True
    time_budget_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the person asked for. ``config`` is there for all actions that plan."""

    action: Action
    config: RunConfig | None = None
    folder: Path | None = None
    where: Where = field(default_factory=Where)
    folders: tuple[Path, ...] = ()  # to merge, into output_dir
    output_dir: Path | None = None
    formats: frozenset[str] | None = None  # None: all
    changes: changes.Asked | None = None  # two finished runs, or an expected file and a run
    history: history.Asked | None = None
    bisect: str | None = None  # the versions


def parse_request(options: argparse.Namespace) -> Request:
    """Turns parsed flags into a request. Raises ``UsageError`` naming the flag that is wrong."""
    request = _parse_request(options)
    return dataclasses.replace(request, formats=formats_asked(_listed("--format", options.format)))


def _parse_request(options: argparse.Namespace) -> Request:
    asked = [
        (Action.VISUALIZE, "--visualize-logs", options.visualize_logs),
        (Action.RESUME, "--resume", options.resume),
        (Action.MERGE, "--merge", options.merge),
        (Action.LIST, "--list", options.list),
        (Action.LIST_COMPILERS, "--list-compilers", options.list_compilers),
        (Action.PRINT_COMMANDS, "--print-run-commands", options.print_run_commands),
        (Action.DOCTOR, "--doctor", options.doctor),
        (Action.INDEX, "--index", options.index is not None),
        (Action.COMPARE, "--compare", options.compare),
        (Action.UPDATE_EXPECTED, "--update-expected", options.update_expected),
        (Action.HISTORY, "--history", options.history is not None),
        (Action.BISECT, "--bisect", options.bisect),
    ]
    chosen = [(action, flag) for action, flag, given in asked if given]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0][1]} and {chosen[1][1]} exclude each other; choose one")
    action = chosen[0][0] if chosen else Action.RUN
    changes.refuse_lone_gates(options)
    history.refuse_lone_filters(options)
    if action in (Action.DOCTOR, Action.COMPARE, Action.UPDATE_EXPECTED, Action.HISTORY):
        return _look(action, options)
    if action is Action.VISUALIZE:
        return Request(action=action, folder=Path(options.visualize_logs))
    if action is Action.INDEX:
        return Request(action=action, folder=Path(options.index))
    if action is Action.RESUME:
        return Request(action=action, folder=Path(options.resume), where=_where(options))
    if action is Action.MERGE:
        output_dir = Path(options.output_dir) if options.output_dir else None
        return Request(action=action, folders=tuple(map(Path, options.merge)), output_dir=output_dir)
    config = _config(options, mode_required=action not in (Action.LIST, Action.LIST_COMPILERS))
    if options.bisect and options.envs:
        raise UsageError("--bisect makes its own environments; leave --envs out")
    if options.bisect and options.executor == "ray":
        raise UsageError("--bisect measures on this machine; leave --executor=ray out")
    return Request(action=action, config=config, where=_where(options), bisect=options.bisect)


def _look(action: Action, options: argparse.Namespace) -> Request:
    """A look at this machine, or at finished runs beside each other."""
    if action is Action.DOCTOR:
        return Request(action=action)
    if action is Action.HISTORY:
        return Request(action=action, history=history.history_asked(options, _listed))
    if action is Action.UPDATE_EXPECTED:
        return Request(action=action, changes=changes.update_asked(options))
    gates = _listed("--fail-on", options.fail_on)
    return Request(action=action, changes=changes.compare_asked(options, gates))


def _config(options: argparse.Namespace, *, mode_required: bool) -> RunConfig:
    selection = Selection(
        only=_listed("--only", options.only),
        filters=_patterns("-k/--filter", options.filter),
        excludes=_patterns("-x/--exclude", options.exclude),
        quick=options.quick,
    )
    return RunConfig(
        suites=_suites(options.suites, options.model),
        modes=_modes(options, mode_required),
        devices=_devices(options.devices),
        dtypes=_dtypes(options),
        compilers=compilers_asked(options, _listed),
        extras=extras_asked(options),
        environments=environments_asked(options.envs, options.reference_env),
        options=options_asked(options),
        baseline_dtype=_baseline_dtype(options),
        skip_unavailable=options.skip_unavailable,
        selection=selection,
        changes=_changes(options),
        protocol=_protocol(options),
        output_dir=Path(options.output_dir) if options.output_dir else None,
        partition=partition_asked(options.total_partitions, options.partition_id, options.timings),
        tags=history.tags_asked(options.tag),
    )


def _modes(options: argparse.Namespace, required: bool) -> tuple[Mode, ...]:
    chosen = tuple(mode for mode in Mode if getattr(options, mode.value))
    if not chosen and required:
        raise UsageError("say what a step is: --training, --inference or --generate, or several of them")
    return chosen or (Mode.TRAINING,)


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
    return tuple(dict.fromkeys(suites))


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
    if {"cuda", "cuda:0"} <= set(devices):
        raise UsageError("--devices: cuda and cuda:0 are the same device; name it once")
    return devices


def _where(options: argparse.Namespace) -> Where:
    if options.executor not in EXECUTORS:
        raise unknown("--executor", options.executor, "executor", EXECUTORS)
    if options.ray_address is not None and options.executor != "ray":
        raise UsageError("--ray-address is for --executor=ray; leave it out, or add --executor=ray")
    if options.envs and options.executor == "ray":
        raise UsageError("--envs are interpreters of this machine; leave --executor=ray out")
    if options.time_budget is not None and options.executor == "ray":
        raise UsageError("--time-budget is for this machine; leave it out with --executor=ray")
    if options.time_budget is not None and options.repeat is not None:
        raise UsageError("--time-budget and -n exclude each other: a budget decides on the rounds")
    return Where(
        time_budget_s=options.time_budget,
        executor=options.executor,
        ray_address=options.ray_address,
        fork_server=not options.no_fork_server,
    )


def _has_nvidia_device() -> bool:
    """Whether the default should be CUDA. A guess from the device node: torch is asked by the worker."""
    return Path("/dev/nvidia0").exists()


def _dtypes(options: argparse.Namespace) -> tuple[str, ...]:
    given = list(_listed("--dtypes", options.dtypes))
    given += [name for name in DTYPES if getattr(options, name, False)]
    for name in given:
        if name not in DTYPES:
            raise unknown("--dtypes", name, "precision", DTYPES)
        _check_tf32("--dtypes", name, options)
    return tuple(dict.fromkeys(given)) or ("float32",)


def _baseline_dtype(options: argparse.Namespace) -> str | None:
    name: str | None = options.baseline_dtype
    if name is not None and name not in DTYPES:
        raise unknown("--baseline-dtype", name, "precision", DTYPES)
    if name is not None:
        _check_tf32("--baseline-dtype", name, options)
    return name


def _check_tf32(flag: str, name: str, options: argparse.Namespace) -> None:
    if "tf32" in name and "cpu" in _devices(options.devices):
        raise UsageError(f"{flag}: {name} is how CUDA devices may multiply; leave it out for --devices=cpu")


def _protocol(options: argparse.Namespace) -> Protocol:
    if options.parity is not None and options.parity not in PARITY_RULES:
        raise unknown("--parity", options.parity, "parity rule", PARITY_RULES)
    accuracy = options.accuracy or options.accuracy_aot_ts_mincut
    if accuracy and options.performance:
        raise UsageError("--accuracy and --performance exclude each other; leave both out to have both")
    given = {
        "repeat": options.repeat,
        "precision": options.precision,
        "parity": options.parity,
        "seed": options.seed,
        "threads": options.threads,
        "timeout_s": options.timeout,
        "processes": options.processes,
    }
    protocol = dataclasses.replace(
        Protocol(),
        accuracy=not options.performance,
        performance=not accuracy,
        use_eval_mode=options.use_eval_mode,
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
