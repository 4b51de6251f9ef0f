"""How a job is measured: the settings that the worker receives. Each is a row of the table of settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import settings
from harness.settings import COUNT, Group, Kind, by_flag, choice, flag, number_text, setting, within

PARITY_RULES = ("noise", "field")
LIMITED_PHASES = ("build", "compile", "measure")
DROPOUT = ("neutralize", "keep")
OPTIMIZERS = ("none", "sgd", "adam", "adamw", "adamw-fused")
ALLOCATORS = ("default", "system")

_protocol = partial(by_flag, group=Group.PROTOCOL)
_condition = partial(by_flag, group=Group.CONDITIONS)
_part = partial(
    flag,
    "--protocol=KEY=VALUE",
    group=Group.PROTOCOL,
    many=True,
    help="a setting without a flag of its own (may be repeated): min_rounds, max_rounds, max_measure_s, "
    "noise_threshold, alpha, min_sample_s",
)
_RATIO = Kind(within(lambda value: 0 <= value < 1, "a share from 0 to 1, such as 0.02"), number_text)
_ALPHA = Kind(within(lambda value: 0 < value < 1, "a share between 0 and 1, such as 0.05"), number_text)
_RATE = Kind(within(lambda value: value > 0, "a rate above 0, such as 0.001"), number_text)
_DECIBELS = Kind(within(lambda value: value > 0, "decibels above 0, such as 25"), number_text)
_SAMPLE = Kind(within(lambda value: value >= 0, "seconds from 0 up"), number_text)

PERFORMANCE = flag(
    "--performance", group=Group.PROTOCOL, means=False, help="measure times only, without the parity check"
)
ACCURACY = flag("--accuracy", group=Group.PROTOCOL, means=False, help="check parity only")
PHASE_TIMEOUT = flag(
    "--phase-timeout=PHASE=S",
    group=Group.PROTOCOL,
    many=True,
    help="seconds for one call of a phase: build, compile or measure (may be repeated)",
)


def _phase_timeouts(given: settings.Given, default: Any) -> Any:
    """``compile=60`` -> {"compile": 60.0}"""
    limits = dict[str, float]()
    for text in given.get(PHASE_TIMEOUT.key, ()):
        phase, _, limit = text.partition("=")
        if phase not in LIMITED_PHASES:
            raise ValueError(settings.no_such(phase, "phase", LIMITED_PHASES))
        value = settings.seconds(limit)
        if limits.setdefault(phase, value) != value:
            raise ValueError(f"{phase} is given twice; choose one limit")
    return limits or default


AUTO = 0  # of ``Protocol.processes``: as many as the verdicts need


_PROCESSES = Kind(
    lambda text: AUTO if text == "auto" else COUNT.read(text),
    lambda count: "auto" if count == AUTO else str(count),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the parts of a job last at most, by the kind of its device. Times are in seconds.

    The defaults are a CPU's, where a stop waits until a batch of rounds has ended.
    """

    batch_s: float = 1e9  # a batch begins no further round after it
    obeys_from: int = 1 << 30  # rounds after which ``max_measure_s`` ends a job below ``min_rounds``
    hurries: bool = False  # after a stop: one round if there is none, and no metrics that need further steps
    warm_up_s: float = 10.0  # of its rounds
    looks_s: float = math.inf  # of the calls that are looked at after the rounds
    exact_s: float = math.inf  # of all fp64 runs together; beyond, only those on the first data are made
    after_timeout: float = 1.0  # the next workers of a job have this share of the time limit
    pools: int = 1  # of noise in a row: so many times fewer launches


ON_A_CPU = Pace()
ON_A_DEVICE = Pace(
    batch_s=5.0,
    obeys_from=6,
    hurries=True,
    warm_up_s=4.0,
    looks_s=1.0,
    exact_s=20.0,
    after_timeout=0.5,
    pools=64,
)


CACHES, LIBRARY = "caches.bin", "model.pt2"  # files in the folder ``Protocol.stored``


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a job is measured. Every record contains it, because derived numbers depend on it."""

    accuracy: bool = setting(True, PERFORMANCE)  # without it, parity is checked
    performance: bool = setting(True, ACCURACY)  # without it, times are measured
    parity: str = _protocol(
        "noise",
        "--parity=RULE",
        kind=choice("parity rule", PARITY_RULES),
        help="noise: by what random roundings do to eager (default); field: the published harness's rule",
    )
    # of files without it, no approximate candidate was judged
    approximate_sqnr: float = _protocol(
        25.0,
        "--approximate-sqnr=DB",
        kind=_DECIBELS,
        help="a compiler that is approximate by design, such as int8, passes from this signal-to-noise ratio "
        "against fp64 (default: 25)",
    )
    seed: int = _condition(
        1337,
        "--seed=N",
        kind=settings.WHOLE,
        help="seed of the weights, the inputs and the order of the rounds (default: 1337)",
        always=True,
    )
    # null: torch's choice
    threads: int | None = _condition(
        None, "-t", "--threads=N", help="CPU threads of the worker (default: torch's choice)"
    )
    # null: until the intervals are narrow enough
    repeat: int | None = _protocol(
        None,
        *("-n", "--repeat=N"),
        help="N rounds in each process (default: 10 to 100, until the interval is narrow enough)",
    )
    min_rounds: int = setting(10, _part(part="min_rounds", kind=COUNT))  # the fewest rounds
    max_rounds: int = setting(100, _part(part="max_rounds", kind=COUNT))  # the most rounds
    # no further round begins after this time
    max_measure_s: float = setting(60.0, _part(part="max_measure_s", kind=settings.SECONDS))
    ci_width: float = _protocol(
        0.02,
        *("--ci-width", "--precision=P%"),
        kind=settings.SHARE,
        help="stop when every 95%% interval is within +-P%% (default: 2%%)",
        recorded="precision",
    )
    # a smaller change is never called faster or slower
    noise_threshold: float = setting(0.02, _part(part="noise_threshold", kind=_RATIO))
    # the accepted share of false discoveries
    alpha: float = setting(0.05, _part(part="alpha", kind=_ALPHA))
    # the steps of a sample are raised until it lasts this long
    min_sample_s: float = setting(0.01, _part(part="min_sample_s", kind=_SAMPLE))
    # 0: auto
    processes: int = _protocol(
        1,
        "--processes=N",
        kind=_PROCESSES,
        help="measure every job in N fresh processes, or in as many as the verdicts need (auto, at most 10): "
        "docs/MEASURING.md (default: auto; on a GPU and with --quick, --why, --tune: 1)",
    )
    process: int = 0  # number of this process; in a record always 0
    start: str = ""  # of a process of --start-up: what it begins with; in a record empty
    stored: str = ""  # the folder of what is stored; in a record empty
    timeout_s: float = _protocol(
        1200.0, "--timeout=S", help="seconds for one worker, with compilation (default: 1200)"
    )
    # by phase
    phase_timeouts_s: dict[str, float] = setting(
        dict,
        PHASE_TIMEOUT,
        read=_phase_timeouts,
        spell=lambda limits: [(PHASE_TIMEOUT, f"{name}={number_text(s)}") for name, s in limits.items()],
    )
    # null: no limit
    max_memory_bytes: int | None = _protocol(
        None,
        "--max-memory=GB",
        help="limit of the host memory of a worker; a job above it ends as OOM (default: no limit)",
    )
    isolate: bool = _protocol(False, "--isolate", help="a process of its own for each candidate")
    # otherwise its probability becomes 1e-30. Files without this field: own models kept it
    keep_dropout: bool = _protocol(
        False,
        "--dropout=WHAT",
        kind=Kind(
            lambda text: bool(DROPOUT.index(choice("treatment", DROPOUT).read(text))),
            lambda keep: DROPOUT[int(keep)],
        ),
        help="of your own model: neutralize: dropout drops nothing (default); keep: docs/MEASURING.md",
        identifies=True,
    )
    use_eval_mode: bool = _protocol(
        False,
        "--use-eval-mode",
        help="train in eval mode: no dropout, no running statistics",
        identifies=True,
    )
    grad: bool = _protocol(
        False,
        "--grad",
        help="inference with gradients enabled, and cleared before each step: for a model that calls "
        "autograd.grad or backward itself",
        identifies=True,
    )
    optimizer: str = _protocol(
        "none",
        "--optimizer=NAME",
        kind=settings.own_or(choice("optimizer", OPTIMIZERS)),
        help="end each training step with torch's optimizer, in eager for eager and the candidates: none "
        "(default), sgd (with momentum), adam, adamw, adamw-fused; or with your own, which FILE.py:FUNCTION "
        "makes of a list of parameters",
        identifies=True,
    )
    channels_last: bool = _protocol(
        False,
        "--channels-last",
        help="weights and inputs of four dimensions in channels-last order, for eager and the candidates",
        identifies=True,
    )
    fixed_batch: bool = by_flag(
        False,
        "--fixed-batch",
        group=Group.MODELS,
        help="out of memory is a failure (default: halve the batch of eager and the candidates)",
    )


_option = partial(by_flag, group=Group.OPTIONS, identifies=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOptions:
    """Options of the compilers. If a compiler cannot take an option, its record has a note."""

    inductor_config: tuple[str, ...] = _option(
        (),
        "--inductor-config=KEY=VALUE",
        many=True,
        help="a setting of torch._inductor.config for every inductor candidate (may be repeated)",
    )
    dynamic_shapes: bool = _option(
        False, "--dynamic-shapes", help="compile for any size; a step is then three batches: N/2, 3N/4 and N"
    )
    dynamic_batch: bool = _option(False, "--dynamic-batch-only", help="compile for any batch size")
    freezing: bool = _option(False, "--freezing", help="inductor: weights are constants (inference)")
    fuser: str | None = setting(
        None,
        flag("--nnc", group=Group.OPTIONS, means="nnc", help="TorchScript's fuser: NNC"),
        flag(
            "--nvfuser",
            group=Group.OPTIONS,
            means="nvfuser",
            help="TorchScript's fuser: NVFuser, if the build has it",
        ),
        identifies=True,
    )
    nopython: bool = _option(False, "--nopython", help="a graph break is an error")
    whole_step: bool = _option(
        False, "--whole-step", help="torch.compile compiles the training step with its backward and optimizer"
    )


BITWISE = "bitwise"

_extra = partial(by_flag, group=Group.EXTRAS)

SHAPE_AXES = ("batch", "sequence")
MOST_SIZES = 8  # Dynamo's own limit of compilations, and the calls in which a candidate's settings hold
EXAMPLE = "write for example batch=16,24,32"


def _shapes(text: str) -> str:
    """The text in its own form: each size once. ``ValueError`` with a sentence."""
    axis, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} names no axis; {EXAMPLE}")
    if axis not in SHAPE_AXES:
        raise ValueError(settings.no_such(axis, "axis", SHAPE_AXES))
    words = values.split(",")
    if not all(word.isdigit() for word in words):
        raise ValueError(f"{values!r} is no list of sizes; {EXAMPLE}")
    sizes = dict.fromkeys(settings.whole(word, least=1) for word in words)
    if len(sizes) > MOST_SIZES:
        raise ValueError(f"these are more than {MOST_SIZES} sizes; {EXAMPLE}")
    return f"{axis}={','.join(map(str, sizes))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Measurements beside parity and times. None of them runs during timed samples."""

    explain: bool = _extra(
        False,
        "--explain",
        help="graph breaks and recompilations with their reasons and source lines, in report.md",
    )
    # `true`, or `bitwise`
    localize: bool | str = setting(
        False,
        flag(
            "--localize",
            group=Group.EXTRAS,
            help="after a parity failure: find the stage and the submodule that go wrong; write repro-*.py",
        ),
        flag(
            "--localize-bitwise",
            group=Group.EXTRAS,
            means=BITWISE,
            help="the same of each candidate without eager's bits: where the first bit differs",
        ),
    )
    batch_invariant: bool = _extra(
        False,
        "--batch-invariant",
        help="after the rounds: each row of the batch alone, and in other company: are its outputs the same?",
    )
    numerics: bool = _extra(
        False,
        "--numerics",
        help="how far each candidate is from eager and fp64: equal bits, ULP, SQNR, KL: docs/NUMERICS.md",
    )
    energy: bool = _extra(
        False, "--energy", help="energy of a step by an NVIDIA GPU's counter: five seconds of each variant"
    )
    profiler_trace: bool = _extra(
        False,
        "--export-profiler-trace",
        help="a Chrome trace of each variant; report.md lists the kernels that changed most",
    )
    # compilations of each candidate in fresh processes, from empty and from filled caches; 0: none
    compile_runs: int = setting(
        0,
        flag(
            "--compile-runs=K",
            group=Group.EXTRAS,
            help="compile every candidate K times from empty and K times from filled caches, each in a fresh "
            "process: docs/MEASURING.md",
        ),
        flag("--cold-start-latency", group=Group.EXTRAS, means=1, help="--compile-runs=1"),
        flag("--warm-start-latency", group=Group.EXTRAS, means=1, help="--compile-runs=1"),
    )
    # races of each candidate's forms against eager, in fresh processes; 0: none
    start_up: int = _extra(
        0,
        "--start-up=K",
        help="K times, race eager and each candidate in fresh processes over 100 steps: from nothing, from "
        "filled caches, from torch's cache file, from an AOTInductor package: docs/MEASURING.md",
    )
    # a stream of calls with inputs of these sizes, in fresh processes; empty: none
    shapes: str = _extra(
        "",
        "--shapes=AXIS=SIZES",
        kind=Kind(_shapes),
        help="calls with up to 8 sizes of batch or sequence in turn, such as batch=16,24,32, in "
        "--processes fresh processes of eager and of each candidate: docs/COMPARE.md",
    )
    # training steps of each run; 0: none
    trajectory: int = _extra(
        0,
        "--trajectory=N",
        kind=Kind(partial(settings.whole, least=20)),
        help="train eager, four noisy eagers and each candidate for N steps from the same weights, and say "
        "whether a candidate stays where roundings lead: docs/NUMERICS.md",
    )
    learning_rate: float = _extra(
        1e-3,
        "--learning-rate=RATE",
        kind=_RATE,
        help="of the optimizer of --trajectory: adamw, or that of --optimizer (default: 0.001)",
    )
    allocator: str = _extra(
        "default",
        "--allocator=NAME",
        kind=choice("allocator", ALLOCATORS),
        help="the worker's malloc: default (the system's, but it keeps its heap) or system",
    )

    @property
    def times_compiling(self) -> bool:
        """Whether compilations are timed that no other job may disturb."""
        return bool(self.compile_runs or self.start_up or self.shapes)
