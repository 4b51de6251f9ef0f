"""From typed flags to a configuration without contradictions."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from operator import attrgetter

from harness import devices
from harness.backends.settings.candidates import compiler_of, named, parts_of
from harness.loading.suite_files import suite_names
from harness.schema import Mode, Protocol
from harness.settings import Given, is_own_model
from runner.errors import UsageError
from runner.plan import compilers
from runner.plan.compilers import COMPILE_MODE, COMPILE_MODES, COMPILERS
from runner.plan.config import QUICK, SUITES, USUAL, RunConfig, Where
from runner.plan.settings import FLAGS, Names, read, row_at, value_of

TORCHBENCH = "torchbench"
DEFAULTS = RunConfig()
TIMES_COMPILING = ("extras.compile_runs", "extras.start_up", "extras.shapes")
SEARCHES = {"why", "tune"}  # actions that measure many variants, each in one process


def run_config(given: Given, *, mode_required: bool = True) -> RunConfig:
    """The checked configuration. ``UsageError`` that names the wrong flag."""
    usual = Protocol() if SEARCHES & given.keys() else USUAL
    config = read(RunConfig(protocol=QUICK if "quick" in given else usual), given)
    chosen = config.compilers
    asked = any(compiler.key in given for compiler in COMPILERS)
    kinds = [devices.of(name) for name in config.devices]
    if all(kind.accelerated for kind in kinds):
        if "processes" not in given:  # until somebody asks for more: each takes a minute on a card
            config = dataclasses.replace(config, protocol=dataclasses.replace(config.protocol, processes=1))
        if not asked:
            graphs = [compilers.WITH_GRAPHS] if all(kind.has_graphs for kind in kinds) else []
            chosen = (compilers.ON_A_DEVICE, *graphs)
    if COMPILE_MODE.key in given:
        if not any(compiler_of(name) == "inductor" for name in chosen):
            raise UsageError(f"{COMPILE_MODE.long} changes inductor; leave it out, or name inductor")
        meant = COMPILE_MODES[value_of(COMPILE_MODE.shown, COMPILE_MODE.kind, given[COMPILE_MODE.key])]
        in_mode = ((name, named(meant, parts_of(name)[1])) for name in chosen)
        chosen = tuple(new if compiler_of(name) == "inductor" else name for name, new in in_mode)
    names, own = compilers.named_compilers(tuple(dict.fromkeys(chosen)), COMPILERS[0].long)
    config = dataclasses.replace(config, compilers=names, own_compilers=own)
    if not config.modes and mode_required:
        choices = "--training, --inference or --generate, or several of them"
        raise UsageError(f"give {choices}: they say what a step is")
    config = dataclasses.replace(config, modes=config.modes or (Mode.TRAINING,))
    check(config)
    return config


def where_asked(given: Given, config: RunConfig) -> Where:
    """What runs the jobs. ``UsageError`` for flags that contradict each other or the configuration."""
    check_where(where := read(Where(), given), config)
    if config.skip_unavailable and where.executor == "ray":
        raise UsageError("--skip-unavailable asks this machine; leave it out with --executor=ray")
    return where


def check_where(where: Where, config: RunConfig) -> None:
    """``UsageError`` for a place that cannot run this configuration."""
    ray = where.executor == "ray"
    if where.ray_address is not None and not ray:
        raise UsageError("--ray-address is for --executor=ray; leave it out, or add --executor=ray")
    if config.environments and ray:
        raise UsageError("--envs uses interpreters of this machine; leave --executor=ray out")
    if where.prepare_ahead is not None and ray:
        raise UsageError("--prepare-ahead works on this machine only; leave it out with --executor=ray")
    if (where.prepare_ahead or 1) == 1:
        return
    if any(devices.of(device).accelerated for device in config.devices):
        raise UsageError(
            "--prepare-ahead: on an accelerator, compilers measure kernels while they compile, and jobs "
            "share its memory; leave the flag out"
        )
    if config.protocol.performance and compilers.autotunes(config.compilers, config.options.inductor_config):
        raise UsageError("max-autotune measures kernels, beside no other job; leave --prepare-ahead out")
    for path in TIMES_COMPILING:
        if _has(config, path):
            raise UsageError(f"{_name(FLAGS, path)} times every compilation alone; leave --prepare-ahead out")


def idle(given: Given, config: RunConfig) -> Iterator[str]:
    """Sentences on flags that do nothing here. They are notes: commands in records have such flags, too."""
    for what, (has_it, settings) in IDLE.items():
        for path, _, value in (setting.partition("=") for setting in settings if has_it(config)):
            keys = {flag.key for flag in row_at(RunConfig, path).flags} & given.keys()
            if any(value in ("", given[key]) for key in keys):
                yield f"{_name(FLAGS, path, value or None)} does nothing with {what}"


def check(config: RunConfig, names: Names = FLAGS) -> None:
    """``UsageError`` for settings that contradict each other."""
    for sentence, rule in RULES.items():
        if callable(rule):
            broken = rule(config)
        else:
            first, *others = (_has(config, *name) for name in NAME.findall(sentence))
            broken = first and rule in others
        if broken:
            last, bundled = (config.partition.total or 1) - 1, ", ".join(_bundled(config))
            text = sentence.format(c=config, last=last, bundled=bundled)
            raise UsageError(NAME.sub(lambda place: _name(names, *place.groups()), text))
    _check_devices(config, names)


def _has(config: RunConfig, path: str, value: str = "") -> bool:
    """Whether a setting has this value; without one, whether it has another than its default."""
    ours = attrgetter(path)(config)
    if path == "options.whole_step":
        return ours or any("whole_step=" in name for name in config.compilers)
    if value:
        return value in map(str, (mode.value for mode in ours) if path == "modes" else (ours,))
    return bool(ours != attrgetter(path)(DEFAULTS))


def _name(names: Names, path: str, value: str | None = None) -> str:
    """The name of a setting, or of a setting with this value, in messages."""
    row = row_at(RunConfig, path)
    if value is None:
        return names.of(path, row.flags[0])
    means = {"True": True, "False": False}.get(value, value)
    switches = [flag for flag in row.flags if flag.metavar is None and flag.means == means]
    valued = [flag for flag in row.flags if flag.metavar is not None]
    return names.valued(path, (switches or valued)[0], means)


def _check_devices(config: RunConfig, names: Names) -> None:
    same = devices.twice(config.devices)
    if same is not None:
        both = f"{same[0]} and {same[1]}"
        raise UsageError(f"{_name(names, 'devices')}: {both} are the same device; name it once")
    cuda_only = "{} exists on CUDA devices only; leave it out for " + _name(names, "devices", "cpu")
    for path, dtypes in (("dtypes", config.dtypes), ("baseline_dtype", (config.baseline_dtype or "",))):
        for dtype in dtypes:
            if "tf32" in dtype and not all(devices.of(device).has_tf32 for device in config.devices):
                raise UsageError(f"{_name(names, path)}: {cuda_only.format(dtype)}")


def _bundled(config: RunConfig) -> list[str]:
    return [name for name in config.suites if name in suite_names()]


# in the sentence of a rule: the name of a setting, or of a setting with this value
NAME = re.compile(r"<([\w.]+)(?:=(\w+))?>")
RULES: dict[str, bool | Callable[[RunConfig], bool]] = {
    "<options.dynamic_shapes=True> and <options.dynamic_batch=True> exclude each other; choose one": True,
    "<protocol.performance=False> and <protocol.accuracy=False> exclude each other; leave both out to "
    "measure both": True,
    "<extras.numerics=True> needs the calls of the parity check; leave <protocol.accuracy=False> out": True,
    "<extras.localize> works in one environment; leave <environments> out": True,
    "<extras.localize> needs the parity check; leave <protocol.accuracy=False> out": True,
    "<extras.batch_invariant=True> compares a forward's outputs after the rounds; leave <modes=generate> "
    "and <protocol.performance=False> out": True,
    "<extras.profiler_trace=True> needs timed steps; leave <protocol.performance=False> out": True,
    "<extras.shapes> has sizes of its own in one environment; leave <sweep>, <extras.start_up> and "
    "<environments> out": True,
    "<extras.shapes> is for a forward, or one with its backward; leave <modes=generate>, "
    "<protocol.optimizer> and <options.whole_step=True> out": True,
    "<extras.shapes> compares settings of candidates, such as inductor[dynamic=True]; leave "
    "<options.dynamic_shapes=True> and <options.dynamic_batch=True> out": True,
    "<changes.prompt_tokens> is for <modes=generate>; leave it out, or add <modes=generate>": False,
    "<changes.new_tokens> is for <modes=generate>; leave it out, or add <modes=generate>": False,
    "<partition.index> needs <partition.total>: say how many parts there are": False,
    "<partition.total> needs <partition.index>: say which part to run, 0 to {last}": False,
    "<protocol.optimizer> ends a training step; leave it out, or add <modes=training>": False,
    "<extras.trajectory> trains; leave it out, or add <modes=training>": False,
    "<extras.trajectory> trains in one environment, at one size; leave <environments> and <extras.shapes> "
    "out": True,
    "<extras.trajectory>: in float16, small gradients are zero without their loss scale; use float32, "
    "bfloat16 or amp": lambda c: bool(c.extras.trajectory) and "float16" in c.dtypes,
    "<extras.learning_rate> is that of <extras.trajectory>; leave it out, or add <extras.trajectory>": False,
    "<options.whole_step=True> compiles a training step; leave it out, or add <modes=training>": False,
    "<protocol.use_eval_mode=True> is for training; leave it out, or add <modes=training>": False,
    "<changes.loss> is for training; leave it out, or add <modes=training>": False,
    "<changes.pretrained>: published weights need <changes.scale=full>, not {c.changes.scale}": (
        lambda c: c.changes.pretrained and c.changes.scale not in (None, "full")
    ),
    "<partition.index>: there is no part {c.partition.index} of {c.partition.total}; choose from 0 to "
    "{last}": lambda c: (c.partition.index or 0) >= (c.partition.total or math.inf),
    "<extras.energy=True> reads the counter of an NVIDIA GPU; leave it out, or choose such a device": (
        lambda c: c.extras.energy and not any(devices.of(device).has_graphs for device in c.devices)
    ),
    "<options.freezing=True> makes the weights constants: it is for <modes=inference> only": (
        lambda c: c.options.freezing and Mode.TRAINING in c.modes
    ),
    "<protocol.optimizer>: in float16, small gradients are zero without their loss scale; use float32, "
    "bfloat16 or amp": lambda c: c.protocol.optimizer != "none" and "float16" in c.dtypes,
    "<protocol.repeat>={c.protocol.repeat} is less than min_rounds={c.protocol.min_rounds}; leave one of "
    "them out": lambda c: (c.protocol.repeat or math.inf) < c.protocol.min_rounds != Protocol().min_rounds,
    "<protocol.max_rounds>={c.protocol.max_rounds} is less than min_rounds={c.protocol.min_rounds}": (
        lambda c: c.protocol.max_rounds < c.protocol.min_rounds
    ),
    "<protocol.keep_dropout>=keep is for models of your own; in the models of {bundled}, dropout layers drop "
    "nothing": lambda c: c.protocol.keep_dropout and bool(_bundled(c)),
    "<sweep> sets the batch size; leave <changes.batch_size> and <changes.batch_sizes> out": lambda c: (
        "batch" in dict(c.sweep) and bool(c.changes.batch_size or c.changes.batch_sizes)
    ),
    "<sweep> sets the prompt; leave <changes.prompt_tokens> out": (
        lambda c: "sequence" in dict(c.sweep) and c.changes.prompt_tokens is not None
    ),
    "<sweep> sets the threads; leave <protocol.threads> out": (
        lambda c: "threads" in dict(c.sweep) and c.protocol.threads is not None
    ),
    "<sweep>: name an axis once, with all its values": lambda c: len(dict(c.sweep)) < len(c.sweep),
    f"{SUITES.long}: {TORCHBENCH} needs a checkout of github.com/pytorch/benchmark; "
    "name it in PYTHONPATH, or install the package torchbenchmark": (
        lambda c: TORCHBENCH in c.suites and not c.environments and find_spec("torchbenchmark") is None
    ),
}
"""The sentence about a wrong configuration, and whether a configuration is wrong in this way.

True: it has the first setting of the sentence beside one of the others. False: without one of the others.
"""

IDLE: dict[str, tuple[Callable[[RunConfig], bool], tuple[str, ...]]] = {
    "models of your own alone": (lambda c: all(map(is_own_model, c.suites)), ("changes.scale",)),
    "eager alone": (lambda c: c.compilers == ("eager",), TIMES_COMPILING),
    "--accuracy": (
        lambda c: not (c.protocol.performance or c.extras.shapes),  # --shapes has processes of its own
        ("protocol.repeat", "protocol.ci_width", "protocol.processes"),
    ),
}
"""What settings do nothing with: whether a configuration has it, and these settings."""
