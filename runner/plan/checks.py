"""From typed flags to a configuration without contradictions."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from typing import Any

from harness import devices
from harness.loading.suite_files import suite_names
from harness.schema import Mode, Protocol
from harness.settings import Flag, Given
from runner.errors import UsageError
from runner.plan import allocators
from runner.plan.compilers import COMPILE_MODE, COMPILE_MODES, COMPILERS, named_compilers
from runner.plan.config import QUICK, SUITES, RunConfig, Where
from runner.plan.settings import FLAGS, Names, read, row_at, value_of

TORCHBENCH = "torchbench"


def run_config(given: Given, *, mode_required: bool = True) -> RunConfig:
    """The checked configuration. ``UsageError`` that names the wrong flag."""
    base = RunConfig(protocol=QUICK) if "quick" in given else RunConfig()
    config = read(base, given)
    chosen = config.compilers
    if COMPILE_MODE.key in given:
        meant = COMPILE_MODES[value_of(COMPILE_MODE.shown, COMPILE_MODE.kind, given[COMPILE_MODE.key])]
        if any(one.key in given for one in COMPILERS):
            chosen = tuple(meant if name == "inductor" else name for name in chosen)
    named = named_compilers(tuple(dict.fromkeys(chosen)), COMPILERS[0].long)
    config = dataclasses.replace(config, compilers=named.names, own_compilers=named.own)
    if not config.modes:
        if mode_required:
            raise UsageError(
                "give --training, --inference or --generate, or several of them: they say what a step is"
            )
        config = dataclasses.replace(config, modes=(Mode.TRAINING,))
    check(config)
    return config


def where_asked(given: Given, config: RunConfig) -> Where:
    """What runs the jobs. ``UsageError`` for flags that contradict each other or the configuration."""
    where = read(Where(), given)
    ray = where.executor == "ray"
    if where.ray_address is not None and not ray:
        raise UsageError("--ray-address is for --executor=ray; leave it out, or add --executor=ray")
    if config.environments and ray:
        raise UsageError("--envs uses interpreters of this machine; leave --executor=ray out")
    if where.time_budget_s is not None and ray:
        raise UsageError("--time-budget works on this machine only; leave it out with --executor=ray")
    if where.prepare_ahead is not None and ray:
        raise UsageError("--prepare-ahead works on this machine only; leave it out with --executor=ray")
    if where.time_budget_s is not None and config.protocol.repeat is not None:
        raise UsageError("--time-budget and -n exclude each other: a time budget sets the number of rounds")
    return where


def check(config: RunConfig, names: Names = FLAGS) -> None:
    """``UsageError`` for settings that contradict each other."""
    for test in (
        _check_devices,
        _check_tf32,
        _check_changes,
        _check_options,
        _check_protocol,
        _check_localize,
        _check_dropout,
        _check_allocator,
        _check_torchbench,
    ):
        test(config, names)


def _call(names: Names, path: str, *value: Any) -> str:
    """The name of a setting, or of a setting with this value, in messages."""
    row = row_at(RunConfig, path)
    if not value:
        return names.of(path, row.flags[0])
    switches = [one for one in row.flags if one.metavar is None and one.means == value[0]]
    valued: list[Flag] = [one for one in row.flags if one.metavar is not None]
    return names.valued(path, (switches or valued)[0], value[0])


def _check_devices(config: RunConfig, names: Names) -> None:
    same = devices.twice(config.devices)
    if same is not None:
        raise UsageError(
            f"{_call(names, 'devices')}: {same[0]} and {same[1]} are the same device; name it once"
        )


def _check_tf32(config: RunConfig, names: Names) -> None:
    for path, dtypes in (("dtypes", config.dtypes), ("baseline_dtype", (config.baseline_dtype or "",))):
        for dtype in dtypes:
            if "tf32" in dtype and not all(devices.of(one).has_tf32 for one in config.devices):
                raise UsageError(
                    f"{_call(names, path)}: {dtype} exists on CUDA devices only; "
                    f"leave it out for {_call(names, 'devices', 'cpu')}"
                )


def _check_changes(config: RunConfig, names: Names) -> None:
    changes = config.changes
    if changes.pretrained and changes.scale not in (None, "full"):
        raise UsageError(
            f"{_call(names, 'changes.pretrained')}: published weights need "
            f"{_call(names, 'changes.scale', 'full')}, not {changes.scale}"
        )
    for name in ("prompt_tokens", "new_tokens"):
        if getattr(changes, name) is not None and Mode.GENERATE not in config.modes:
            generate = _call(names, "modes", Mode.GENERATE)
            raise UsageError(
                f"{_call(names, f'changes.{name}')} is for {generate}; leave it out, or add {generate}"
            )


def _check_options(config: RunConfig, names: Names) -> None:
    options = config.options
    if options.dynamic_shapes and options.dynamic_batch:
        one, other = (_call(names, f"options.{name}", True) for name in ("dynamic_shapes", "dynamic_batch"))
        raise UsageError(f"{one} and {other} exclude each other; choose one")
    if options.freezing and Mode.TRAINING in config.modes:
        raise UsageError(
            f"{_call(names, 'options.freezing', True)} makes the weights constants: "
            f"it is for {_call(names, 'modes', Mode.INFERENCE)} only"
        )


def _check_protocol(config: RunConfig, names: Names) -> None:
    protocol = config.protocol
    if not (protocol.accuracy or protocol.performance):
        one, other = (_call(names, f"protocol.{name}", False) for name in ("performance", "accuracy"))
        raise UsageError(f"{one} and {other} exclude each other; leave both out to measure both")
    if protocol.repeat is not None and protocol.repeat < protocol.min_rounds != Protocol().min_rounds:
        raise UsageError(
            f"{_call(names, 'protocol.repeat')}={protocol.repeat} is less than "
            f"min_rounds={protocol.min_rounds}; leave one of them out"
        )
    if protocol.max_rounds < protocol.min_rounds:
        raise UsageError(
            f"{_call(names, 'protocol.max_rounds')}={protocol.max_rounds} is less than "
            f"min_rounds={protocol.min_rounds}"
        )


def _check_localize(config: RunConfig, names: Names) -> None:
    if not config.extras.localize:
        return
    asked = _call(names, "extras.localize", True)
    if config.environments:
        raise UsageError(f"{asked} works in one environment; leave {_call(names, 'environments')} out")
    if not config.protocol.accuracy:
        timed = _call(names, "protocol.accuracy", False)
        raise UsageError(f"{asked} needs the parity check; leave {timed} out")


def _check_dropout(config: RunConfig, names: Names) -> None:
    bundled = [name for name in config.suites if name in suite_names()]
    if config.protocol.keep_dropout and bundled:
        raise UsageError(
            f"{_call(names, 'protocol.keep_dropout')}=keep is for models of your own; in the models of "
            f"{', '.join(bundled)}, dropout layers drop nothing"
        )


def _check_torchbench(config: RunConfig, names: Names) -> None:
    asked, folder = TORCHBENCH in config.suites, config.changes.torchbench
    flag = _call(names, "changes.torchbench")
    if folder is not None and not asked:
        raise UsageError(f"{flag} is for {SUITES.long}={TORCHBENCH}; leave it out, or add the suite")
    if asked and folder is None and not config.environments and find_spec("torchbenchmark") is None:
        raise UsageError(
            f"{SUITES.long}: {TORCHBENCH} needs a checkout of github.com/pytorch/benchmark; "
            f"give {flag}=DIR, or install the package torchbenchmark"
        )


def _check_allocator(config: RunConfig, names: Names) -> None:
    allocators.library_of(config.extras.allocator, asked=_call(names, "extras.allocator"))
