"""The configuration of a run: frozen dataclasses whose fields are rows of the table of settings."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness import devices, schema, settings
from harness.loading.suite_files import suite_names
from harness.protocol import AUTO
from harness.schema import CompilerOptions, Extras, Mode, Protocol
from harness.settings import (
    DURATION,
    Given,
    Group,
    Kind,
    Row,
    Spelled,
    by_flag,
    choice,
    flag,
    is_own_model,
    setting,
)
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS, DEFAULT_COMPILERS, listable, spelled_compilers
from runner.plan.environments import spec
from runner.plan.partition import Partition
from runner.plan.settings import read_row
from runner.plan.sweep import AXIS, Axis

LONGEST_TAG = 80

# -- kinds of values of a plan ---------------------------------------------------------


def _device(text: str) -> str:
    try:
        devices.named(text)
    except ValueError:
        raise ValueError(settings.no_such(text, "device", (*devices.EXAMPLES, *devices.UNTRIED))) from None
    return text


def _suite(text: str) -> str:
    return listable(text) if text.endswith(".py") else str(choice("suite", suite_names()).read(text))


def _own_model(text: str) -> str:
    if not is_own_model(text):
        form = "package.module:function or file.py:function"
        raise ValueError(f"{text!r} is not written as {form}{_functions_of(text)}")
    return settings.placed(text)


def _functions_of(file: str) -> str:
    """What could follow the colon. The parent imports no file of the user's own, and reads it only."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [f"{file}:{part.name}" for part in tree.body if isinstance(part, ast.FunctionDef)]
    return f"; it has {', '.join(name for name in names if ':_' not in name) or 'no function'}"


def _folder(text: str) -> Path:
    if not text.strip():
        raise ValueError("the value is empty; give the path of a folder, or leave the flag out")
    return Path(text)


def _tag(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > LONGEST_TAG:
        raise ValueError(f"{text!r} is no name; give up to {LONGEST_TAG} printable characters")
    return text.strip()


DEVICE = Kind(_device)
DTYPE = choice("precision", schema.DTYPES)

_select = partial(by_flag, group=Group.SELECTION)
_model = partial(by_flag, group=Group.MODELS)
_condition = partial(by_flag, group=Group.CONDITIONS)
_protocol = partial(by_flag, group=Group.PROTOCOL)


# -- settings with several flags --------------------------------------------------------------------

SUITES = flag(
    "--suites=NAME",
    group=Group.SELECTION,
    listed=True,
    kind=Kind(_suite),
    help="suites, repeated or comma-separated; a path to a .py file is a suite too (default: tiny_gpt)",
)
MODEL = flag(
    "--model=MODULE:FUNCTION",
    group=Group.SELECTION,
    many=True,
    kind=Kind(_own_model),
    help="a model of your own: the function returns (module, inputs[, loss[, target]])",
)
MODES = tuple(
    flag(f"--{mode.value}", group=Group.SELECTION, means=mode, help=text)
    for mode, text in (
        (Mode.TRAINING, "forward, loss and backward; modes may be combined"),
        (Mode.INFERENCE, "forward without gradients"),
        (Mode.GENERATE, "greedy text generation with a static cache: prefill and decode"),
    )
)
DTYPE_FLAGS = (
    flag(
        "--dtypes=DTYPE",
        group=Group.CONDITIONS,
        listed=True,
        kind=DTYPE,
        help="float32, tf32, bfloat16, float16, amp (autocast to the device's usual type), amp_bfloat16, "
        "amp_float16, amp_bfloat16+tf32; repeated or comma-separated (default: float32)",
    ),
    *(
        flag(f"--{name}", group=Group.CONDITIONS, means=name, help=f"the same as --dtypes={name}{more}")
        for name, more in (
            ("float32", ""),
            ("bfloat16", ": the weights are cast, too; for autocast write --dtypes=amp_bfloat16"),
            ("float16", ": the weights are cast, too; for autocast write --dtypes=amp_float16"),
            ("amp", ""),
        )
    ),
)

BATCH_SIZE_FILE = flag(
    "--batch-size-file=FILE",
    group=Group.MODELS,
    help="batch sizes for some models: a file with one 'model,batch size' per line",
)


def _batch_sizes(given: Given, default: Any) -> Any:
    path = given.get(BATCH_SIZE_FILE.key)
    if path is not None and "batch_size" in given:
        raise UsageError(f"--batch-size and {BATCH_SIZE_FILE.long} exclude each other; choose one")
    return batch_sizes(Path(path)) if path is not None else default


def batch_sizes(path: Path) -> tuple[tuple[str, int], ...]:
    """(model, batch size) of each line, ``name,batch`` or ``name batch``, as in PyTorch's harness."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{path} cannot be read ({why})") from None
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        name, *size = [word for word in re.split(r"[,\s]+", text) if word] or [""]
        if text and not (len(size) == 1 and re.fullmatch("0*[1-9][0-9]{0,8}", size[0])):
            raise ValueError(f"line {number} of {path} is not 'model,batch size': {text[:80]!r}")
        if name in sizes:
            raise ValueError(f"line {number} of {path} has {name} again; leave one of the lines out")
        sizes |= {name: int(size[0])} if text else {}
    if not sizes:
        raise ValueError(f"{path} has no line; write 'model,batch size', one model a line")
    return tuple(sizes.items())


def _suites(given: Given, default: Any) -> Any:
    """Own models first, then suites. The default suite counts only if neither was given."""
    return read_row(Row(flags=(MODEL, SUITES), many=True), given, default)


def _spelled_suites(suites: tuple[str, ...]) -> Spelled:
    own: Spelled = [(MODEL, suite) for suite in suites if is_own_model(suite)]
    others = [suite for suite in suites if not is_own_model(suite)]
    return [*own, (SUITES, ",".join(others))] if others else own


def _defaults(tokens: dict[str, int]) -> str:
    return ", ".join(f"{count} at {scale}" for scale, count in tokens.items())


# -- the dataclasses --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which cases of the suites are measured."""

    only: tuple[str, ...] = _select(
        (),
        "--only=NAME",
        listed=True,
        help="this model only (may be repeated): any name that the suite's library has; 'vit_*' works",
    )
    filters: tuple[str, ...] = _select(
        (), "-k", "--filter=RE", many=True, help="models whose name matches any given RE"
    )
    excludes: tuple[str, ...] = _select(
        (), "-x", "--exclude=RE", many=True, help="leave out the models whose name matches"
    )
    quick: bool = _select(False, "--quick", help="a few models, few rounds; parity is checked in full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Sizes, loss, configuration and weights that replace the suite's own."""

    # None: the scale that suits the device
    scale: str | None = _model(
        None,
        "--scale=SCALE",
        kind=choice("scale", schema.SCALES),
        help="full: as published (default on CUDA); small (default on a CPU); tiny: tests: docs/MODELS.md",
    )
    batch_size: int | None = _model(
        None, "--batch-size=N", help="batch size of every model (default: each model's own)"
    )
    # (model, batch size), from a file
    batch_sizes: tuple[tuple[str, int], ...] = setting((), BATCH_SIZE_FILE, read=_batch_sizes)
    loss: str = _model(
        "own",
        "--loss=LOSS",
        kind=choice("loss", schema.LOSSES),
        help="own: the suite's (default); mean, sum: of the output",
    )
    config: tuple[str, ...] = _model(
        (), "--model-config=KEY=VALUE", many=True, help="changes the model's configuration (may be repeated)"
    )
    pretrained: bool = _model(
        False, "--pretrained", help="published weights instead of random weights; downloads them"
    )
    prompt_tokens: int | None = _model(
        None,
        "--prompt-tokens=N",
        help=f"prompt length of --generate (default: {_defaults(schema.PROMPT_TOKENS)})",
    )
    new_tokens: int | None = _model(
        None, "--new-tokens=N", help=f"tokens that --generate adds (default: {_defaults(schema.NEW_TOKENS)})"
    )
    no_skip: bool = _select(False, "--no-skip", help="also the models that their suite skips with a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The models, compilers, conditions and method of a run, and the folder of its results."""

    suites: tuple[str, ...] = setting(
        ("tiny_gpt",), SUITES, MODEL, read=_suites, spell=_spelled_suites, always=True
    )
    modes: tuple[Mode, ...] = setting((), *MODES, many=True, always=True)
    dtypes: tuple[str, ...] = setting(("float32",), *DTYPE_FLAGS, many=True, always=True)
    devices: tuple[str, ...] = _condition(
        lambda: (devices.likely(),),
        *("-d", "--devices", "--device=DEVICE"),
        listed=True,
        kind=DEVICE,
        help=f"{', '.join(devices.EXAMPLES)}; repeated or comma-separated (default: a GPU if there is one): "
        "docs/GPU.md",
        always=True,
    )
    # the reference environment first; (): only the environment that runs this program
    environments: tuple[spec.EnvSpec, ...] = setting(
        (),
        *(spec.ENVS, spec.REFERENCE_ENV),
        read=lambda given, default: (
            spec.environments_asked(given.get(spec.ENVS.key), given.get(spec.REFERENCE_ENV.key)) or default
        ),
        spell=lambda specs: [(spec.ENVS, f"{asked.name}={asked.text}") for asked in specs],
    )
    compilers: tuple[str, ...] = setting(
        DEFAULT_COMPILERS, *COMPILERS, many=True, always=True, spell=spelled_compilers
    )
    own_compilers: Mapping[str, str] = field(default_factory=dict)  # candidate -> "file.py:function"
    skip_unavailable: bool = by_flag(
        False,
        "--skip-unavailable",
        group=Group.COMPILERS,
        help="skip a compiler that cannot be used here; a record gives the reason (default: an error)",
    )
    selection: Selection = field(default_factory=Selection)
    changes: Changes = field(default_factory=Changes)
    sweep: tuple[Axis, ...] = _condition(
        (),
        "--sweep=AXIS=VALUES",
        many=True,
        kind=AXIS,
        help="measure at each value of batch, sequence or threads, such as batch=1,2,4,8 or "
        "sequence=128:4096:*2 (may be repeated): curves and crossover points",
    )
    # None: the precision of each candidate
    baseline_dtype: str | None = _condition(
        None,
        "--baseline-dtype=DTYPE",
        kind=DTYPE,
        help="precision of the eager baseline (default: the precision of each candidate)",
    )
    options: CompilerOptions = field(default_factory=CompilerOptions)
    protocol: Protocol = field(default_factory=Protocol)
    extras: Extras = field(default_factory=Extras)
    partition: Partition = field(default_factory=Partition)
    output_dir: Path | None = by_flag(
        None,
        "--output-dir=DIR",
        group=Group.OUTPUT,
        kind=Kind(_folder),
        help="a new or empty folder for this run (default: logs/<UTC time>-<what>)",
    )
    tags: tuple[str, ...] = by_flag(
        (),
        "--tag=NAME",
        group=Group.OUTPUT,
        many=True,
        kind=Kind(_tag),
        help="a name for this run; run.json keeps it and --history shows it (may be repeated)",
    )


USUAL = Protocol(processes=AUTO)
"""A run of the command line: as many processes as the verdicts need."""

QUICK = dataclasses.replace(Protocol(), min_rounds=10, max_rounds=20, max_measure_s=3.0, ci_width=0.05)
"""``--quick``: enough rounds for a first look at the speed, too few for numbers to publish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What runs the jobs: this machine or a Ray cluster."""

    executor: str = _condition(
        "local",
        "--executor=WHERE",
        kind=choice("executor", ("local", "ray")),
        help="local: this machine (default); ray: the nodes of a Ray cluster, one job at a time for each GPU "
        "or, on CPUs, for each of the largest nodes; with --threads=N a CPU job has N cores of its node",
    )
    # None: RAY_ADDRESS, or a cluster started on this machine
    ray_address: str | None = _condition(
        None,
        "--ray-address=ADDRESS",
        help="the cluster, such as 10.0.0.1:6379 or auto (default: RAY_ADDRESS, else a cluster started here)",
    )
    fork_server: bool = _protocol(
        True, "--no-fork-server", means=False, help="start a new interpreter for every worker"
    )
    # None: as many as suit the machine
    prepare_ahead: int | None = _protocol(
        None,
        "--prepare-ahead=N",
        help="prepare up to N jobs side by side; each is timed alone: docs/MEASURING.md",
    )
    # None: until every verdict is closed that further processes can close
    time_limit_s: float | None = _protocol(
        None,
        "--time-limit=TIME",
        kind=DURATION,
        help="begin nothing after 10m, 2h or 90s: the report has what is measured, and --resume goes on",
    )
