"""The plain data that travels between suites, worker and runner.

Everything here is frozen, carries its units in its names and imports nothing
but the standard library, so that the runner can use it without torch and a
worker can use it under any interpreter from Python 3.10 on.

    suite.cases() -> Case -> plan -> Job --JSON--> worker session --> Record
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

# History of the record format; readers accept every version listed here.
#   1  2026-11  first version
#   2  2026-11  a case has scale, loss, config, pretrained, skip, tolerance and token counts, and may have
#               no batch size of its own; samples have prefill_s; a model has batch_size
SCHEMA_VERSION = 2

BASELINE = "baseline"
"""Name of the eager variant that every candidate is paired with."""

WHOLE = ""
"""Stands for the whole job where metrics are given by variant."""


DTYPES = (
    *("float32", "tf32", "bfloat16", "float16"),
    *("amp", "amp_bfloat16", "amp_float16", "amp_bfloat16+tf32"),
)
"""The precisions of ``--dtypes``; ``harness.precision`` says what each means."""


class Mode(str, Enum):
    """What one step is."""

    TRAINING = "training"
    INFERENCE = "inference"
    GENERATE = "generate"


class Status(str, Enum):
    """How a (job, candidate) ended: the field's words, then ours where it has none."""

    PASS = "pass"
    PASS_DUE_TO_SKIP = "pass_due_to_skip"
    FAIL_ACCURACY = "fail_accuracy"
    EAGER_TWO_RUNS_DIFFER = "eager_two_runs_differ"
    FAIL_TO_RUN = "fail_to_run"
    OOM = "OOM"
    EAGER_1ST_RUN_FAIL = "eager_1st_run_fail"
    EAGER_1ST_RUN_OOM = "eager_1st_run_OOM"
    EAGER_2ND_RUN_FAIL = "eager_2nd_run_fail"
    EAGER_2ND_RUN_OOM = "eager_2nd_run_OOM"
    MODEL_FAIL_TO_LOAD = "model_fail_to_load"
    EAGER_FAIL_TO_RUN = "eager_fail_to_run"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"
    # No word in the field for these:
    CRASH = "crash"  # the worker died of a signal or exited; the error names it
    NOT_COMPILED = "not_compiled"  # the compiler was never called, or captured nothing
    RECOMPILES = "recompiles"  # compiled again during every attempt at timed rounds
    SKIP = "skip"  # not run, for a reason that the suite gives: no failure, and in no average

    @property
    def passed(self) -> bool:
        """Whether a number with this status may enter an average."""
        return self in (Status.PASS, Status.PASS_DUE_TO_SKIP)

    @property
    def out_of_memory(self) -> bool:
        return self in (Status.OOM, Status.EAGER_1ST_RUN_OOM, Status.EAGER_2ND_RUN_OOM)


SCALES = ("full", "small", "tiny")
"""``full``: as published. ``small``: its widths, but less depth, vocabulary and length, so that a
training step takes 0.1 to 1 s on two cores. ``tiny``: for tests."""

LOSSES = ("own", "mean", "sum")
"""``own``: what the suite trains the model with. The others reduce the output itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a suite is asked for: it sizes its cases by it."""

    mode: Mode
    device_type: str  # "cpu", "cuda"
    scale: str  # one of SCALES


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure: a model of a suite, in one mode, at one size.

    ``batch_size`` is what runs; ``published_batch_size`` is what the source of
    the case used, so that a cut batch can never be mistaken for the original.
    Both are None where only the model's own code knows.
    """

    suite: str
    name: str
    mode: Mode
    batch_size: int | None
    published_batch_size: int | None
    scale: str = "full"
    tags: tuple[str, ...] = ()
    loss: str = "own"  # one of LOSSES
    config: tuple[str, ...] = ()  # "key=value": changes to the model's own configuration
    pretrained: bool = False  # published weights instead of random ones: needs a network
    tolerance: float | None = None  # of the parity check; None: the mode's own
    skip: str = ""  # why this is not run unless asked for with --no-skip
    prompt_tokens: int | None = None  # generation only, as is new_tokens
    new_tokens: int | None = None

    @property
    def changes(self) -> tuple[str, ...]:
        """What was asked for beyond the suite's own, as words: () for the plain case."""
        words = [f"{self.loss}_loss"] if self.loss != "own" else []
        words += ["pretrained"] if self.pretrained else []
        words += [f"p{self.prompt_tokens}"] if self.prompt_tokens is not None else []
        words += [f"n{self.new_tokens}"] if self.new_tokens is not None else []
        return (*words, *self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a job is measured. Derived numbers use it too, so it is in every record."""

    accuracy: bool = True
    performance: bool = True
    parity: str = "scaled"  # "scaled" (ours) or "field" (the published rule)
    seed: int = 1337
    threads: int | None = None  # None: torch's own choice
    repeat: int | None = None  # fixed number of rounds; None: stop when precise
    min_rounds: int = 10
    max_rounds: int = 100
    max_measure_s: float = 60.0
    precision: float = 0.02  # stop when every 95 % interval is within +-precision
    noise_threshold: float = 0.02  # a smaller change is never called faster or slower
    alpha: float = 0.05
    min_sample_s: float = 0.01  # iterations per sample are raised until a sample lasts this long
    processes: int = 1  # fresh ones, one after the other, that measure every job
    process: int = 0  # which of them: each has its own order of the rounds
    timeout_s: float = 1200.0
    phase_timeouts_s: dict[str, float] = field(default_factory=dict)  # of one call: build, compile, measure
    max_memory_bytes: int | None = None  # of the worker and all it starts, on the host
    isolate: bool = False
    use_eval_mode: bool = False  # training in eval mode: no dropout, no running statistics
    fixed_batch: bool = False  # out of memory is then a failure; else the batch is halved for all alike


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerOptions:
    """What is asked of the compilers beside their names. One that cannot take it says so in a note."""

    inductor_config: tuple[str, ...] = ()  # "key=value", as torch._inductor.config has them
    dynamic_shapes: bool = False  # every size may change: nothing is specialised on it
    dynamic_batch: bool = False  # the batch may, and it alone
    freezing: bool = False  # inductor takes the weights for constants (inference)
    fuser: str | None = None  # TorchScript's: "nnc" or "nvfuser"
    nopython: bool = False  # a graph break is an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What is asked for beside parity and times; nothing of it happens during timed samples."""

    explain: bool = False  # graph breaks and recompilations with their reasons and source lines
    profiler_trace: bool = False  # a Chrome trace of each variant, and the kernels that changed most
    cold_start: bool = False  # every worker begins with empty compile caches
    warm_start: bool = False  # every worker begins with the caches that an earlier one filled
    allocator: str = "default"  # the worker's malloc: "default", "jemalloc" or "tcmalloc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A Python interpreter with its packages: one of those that a run compares (``--envs``)."""

    name: str
    python: str  # the interpreter: a path
    asked: str  # what the person wrote: that path, or requirements such as "torch==2.2.2"
    torch: str = ""  # its version, as found when the run was planned


def of_environment(compiler: str, environment: str) -> str:
    """``inductor@new``: what a compiler is called as a candidate in one of several environments."""
    return f"{compiler}@{environment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case on one device at one precision, with all its candidates: one worker's work."""

    case: Case
    device: str
    dtype: str
    candidates: tuple[str, ...]
    protocol: Protocol = field(default_factory=Protocol)
    options: CompilerOptions = field(default_factory=CompilerOptions)
    baseline_dtype: str | None = None  # eager's precision where it is not the candidates'
    unavailable: dict[str, str] = field(default_factory=dict)  # candidates that are not run here, and why
    extras: Extras = field(default_factory=Extras)
    environments: tuple[Environment, ...] = ()  # the first is the reference; (): the runner's own alone

    @property
    def option_words(self) -> tuple[str, ...]:
        """What differs from the plain job of this case, as words: () where nothing does."""
        options = self.options
        words = [f"vs_{self.baseline_dtype}"] if self.baseline_dtype is not None else []
        flags = ("dynamic_shapes", "dynamic_batch", "freezing", "nopython")
        words += [name for name in flags if getattr(options, name)]
        words += [options.fuser] if options.fuser is not None else []
        words += ["envs_" + "_".join(one.name for one in self.environments)] if self.environments else []
        return (*words, *options.inductor_config)

    @property
    def key(self) -> str:
        """Stable name for files and joins: readable, safe as a file name, unique in a plan."""
        case = self.case
        parts = (
            case.suite.rsplit("/", 1)[-1].removesuffix(".py"),
            case.name,
            case.mode.value,
            self.device,
            self.dtype,
            "bsown" if case.batch_size is None else f"bs{case.batch_size}",
            case.scale,
            *case.changes,
            *self.option_words,
        )
        return _file_name(case.suite, parts)


@lru_cache(maxsize=16)  # reports ask for the same one again and again
def _file_name(suite: str, parts: tuple[str, ...]) -> str:
    plain = "-".join(parts)
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain)[:120].lstrip(".")
    if safe == plain and "/" not in suite:
        return safe
    # a name may hold anything that Python takes for text: half a surrogate pair, too
    whole = "\0".join((suite, *parts)).encode(errors="surrogatepass")
    digest = hashlib.sha256(whole).hexdigest()[:8]
    return f"{safe}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Every variant timed once. ``order`` is the order in which they ran.

    ``seconds[v]`` is the time of one step of variant v (the mean over the
    sample's iterations); ``minor_faults[v]`` the page faults of one step.
    """

    order: tuple[str, ...]
    seconds: dict[str, float]
    minor_faults: dict[str, float]
    prefill_s: dict[str, float] = field(default_factory=dict)  # generation only: the part before decoding
    index: int = 0  # several environments: the number of the round of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The paired samples of one candidate, in the order of the rounds (all columns as long).

    ``*_position`` is the variant's place (0 = first) in its round's random order.
    """

    baseline_s: tuple[float, ...]
    candidate_s: tuple[float, ...]
    baseline_position: tuple[int, ...]
    candidate_position: tuple[int, ...]
    baseline_minor_faults: tuple[float, ...]
    candidate_minor_faults: tuple[float, ...]
    iterations_per_sample: int
    baseline_prefill_s: tuple[float, ...] = ()  # generation only: until the first new token
    candidate_prefill_s: tuple[float, ...] = ()
    rounds_by_process: tuple[int, ...] = ()  # where several processes measured, in their order
    # several environments: eager of the reference environment in the same round, and the round's number
    reference_s: tuple[float, ...] = ()
    reference_position: tuple[int, ...] = ()
    round_index: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.baseline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """One compared tensor: its distance from the reference for candidate and eager.

    All figures are absolute, in the tensor's own unit; ``scale`` is the RMS of
    the reference, ``allowed`` the limit that ``candidate_rmse`` had to stay under.
    """

    name: str
    numel: int
    scale: float
    eager_rmse: float
    candidate_rmse: float
    allowed: float
    candidate_max: float
    allowed_max: float
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What the parity check found, whatever the verdict.

    ``worst`` is the tensor closest to (or furthest beyond) its limit.
    ``reference`` is "fp64", or "eager" where no fp64 run could be made.
    """

    rule: str
    reference: str
    tolerance: float
    multiplier: float
    tensors: int
    failed: int
    worst: TensorError | None
    eager_bit_equal: bool
    eager_spread: float
    noise_tensors: tuple[str, ...] = ()  # eager itself carries no correct digit there
    sensitive_tensors: tuple[str, ...] = ()  # passed only beside eager with shaken weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What was really built."""

    parameters: int
    parameter_bytes: int
    input_shapes: tuple[str, ...]
    batch_size: int | None = None  # smaller than the job's where memory did not suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no number: the exception or signal, where it happened, and its log."""

    kind: str  # exception class, "SIGSEGV", "exit 3", "timeout"
    message: str
    phase: str  # open | compile | check | warm up | measure | finish
    log: str | None = None  # relative to the run folder


Scalar = float | int | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Exactly one per (job, candidate), always. Numbers that do not exist are None, never 0."""

    job: Job
    candidate: str
    status: Status
    parity: Parity | None = None
    samples: Samples | None = None
    metrics: dict[str, Scalar] = field(default_factory=dict)
    model: ModelFacts | None = None
    environment: dict[str, Scalar] = field(default_factory=dict)
    failure: Failure | None = None
    reproduce: str = ""
    notes: tuple[str, ...] = ()
    started: str = ""  # UTC, ISO 8601
    ended: str = ""
    env: str = ""  # name of the environment that ran it; "": the runner's own interpreter
    env_parity: Parity | None = None  # of that environment's eager, held against the reference environment's
    # the candidate's calls before timing, each for itself, in the order they ran: the first one compiles
    first_calls_s: tuple[float, ...] = ()
    schema_version: int = SCHEMA_VERSION
