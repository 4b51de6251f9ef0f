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

from harness.protocol import CompilerOptions as CompilerOptions  # noqa: PLC0414 - the schema has it
from harness.protocol import Extras as Extras  # noqa: PLC0414
from harness.protocol import Protocol as Protocol  # noqa: PLC0414
from harness.recorded.numerics import Course as Course  # noqa: PLC0414
from harness.recorded.numerics import Numerics as Numerics  # noqa: PLC0414
from harness.recorded.numerics import Trajectory as Trajectory  # noqa: PLC0414
from harness.settings import identity

# History of the record format. Readers accept every version listed here.
#   1  2026-11  first version
#   2  2026-11  a case has scale, loss, config, pretrained, skip, tolerance and token counts, and may have
#               no batch size of its own; samples have prefill_s; a model has batch_size
#   3  2026-11  a record is one process of a candidate; it has process, experiment, start, round, caches
SCHEMA_VERSION = 3

BASELINE = "baseline"
"""Name of the eager variant that every candidate is paired with."""

WHOLE = ""
"""The key of the whole job's metrics in a dict of metrics by variant."""

STOPPED = "stopped"
"""In ``rounds_ended``: Ctrl-C cut the result short, in its rounds or before a further process."""

BREAKS_ON_OTHER_DATA = "BreaksOnOtherData"
"""The kind of the failure of a device that breaks where eager runs on other data than the model's own."""

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
    """How a (job, candidate) ended: the words of PyTorch's harness, then torchduet's own words."""

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
    # torchduet's own words:
    CRASH = "crash"  # the worker died of a signal or exited; the error names it
    NOT_COMPILED = "not_compiled"  # the compiler was never called, or captured nothing
    RECOMPILES = "recompiles"  # compiled again during every attempt at timed rounds
    CANNOT_JUDGE = "cannot_judge"  # eager's results do not allow it: random numbers, overflow, mostly noise
    APPROXIMATE = "approximate"  # differs from eager by design, and was not judged: in no average
    SKIP = "skip"  # not run, for a reason that the suite gives: no failure, not in averages

    @property
    def passed(self) -> bool:
        """Whether a number with this status may enter an average."""
        return self in (Status.PASS, Status.PASS_DUE_TO_SKIP)

    @property
    def counted(self) -> bool:
        """Whether a record with this status enters the pass rate."""
        return self not in (Status.SKIP, Status.APPROXIMATE)

    @property
    def out_of_memory(self) -> bool:
        return self in (Status.OOM, Status.EAGER_1ST_RUN_OOM, Status.EAGER_2ND_RUN_OOM)


SCALES = ("full", "small", "tiny")
"""``full``: as published. ``small``: the published widths, but less depth, vocabulary and length, so that a
training step takes 0.1 to 1 s on two cores. ``tiny``: for tests."""

PUBLISHED_MODEL = "published_model"
"""Tag of a case whose model is the published one at every scale: only its batch is smaller."""

# tokens of --generate, by scale
PROMPT_TOKENS = {"full": 1000, "small": 32, "tiny": 8}
NEW_TOKENS = {"full": 256, "small": 32, "tiny": 4}

LOSSES = ("own", "mean", "sum")
"""``own``: the suite's loss. The others reduce the output to one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The request to a suite. The suite chooses the sizes of its cases by it."""

    mode: Mode  # as in a case
    device_type: str  # `cpu`, `cuda`
    scale: str  # as in a case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure: a model of a suite, in one mode, at one size.

    ``batch_size`` is the batch that runs, ``published_batch_size`` the batch of the case's source; reports
    show both if they differ. Both are None if only the model's own code knows its batch.
    """

    suite: str  # the suite's name, the path of its file, or `module:function`
    name: str  # the model's name; any text
    mode: Mode  # `training`, `inference` or `generate`
    batch_size: int | None  # null: only the model's code knows it
    published_batch_size: int | None  # of the source of the case
    scale: str = "full"  # `full`, `small` or `tiny`
    # such as `quick`, `on_request`, `published_model` (the published model at every scale)
    tags: tuple[str, ...] = ()
    loss: str = "own"  # `own`, `mean` or `sum`
    config: tuple[str, ...] = ()  # changes to the model's configuration, `key=value`
    pretrained: bool = False  # published weights instead of random ones
    tolerance: float | None = None  # of the parity check; null: the default of the mode
    skip: str = ""  # why it is skipped by default; empty: it is not
    no_skip: bool = False  # the suite skips this case, and `--no-skip` requested it
    prompt_tokens: int | None = None
    new_tokens: int | None = None  # text generation only
    # tokens in a text, of a suite whose models take any length; null: the model or its code knows it
    sequence: int | None = None
    point: tuple[str, ...] = ()  # of `--sweep`: the values of its axes, `batch=4`
    # trainable parameters of the suite's own case, by which small models come first; null: not counted. Cases
    # that differ in nothing else are equal
    parameters: int | None = field(default=None, compare=False)
    folder: str = ""  # older records only: the checkout of suite torchbench

    @property
    def batch(self) -> int:
        """``batch_size`` of a case that has one, as the cases of most suites have."""
        assert self.batch_size is not None
        return self.batch_size

    @property
    def changes(self) -> tuple[str, ...]:
        """The differences from the suite's own case, as words: () for the plain case."""
        words = [f"{self.loss}_loss"] if self.loss != "own" else []
        words += ["pretrained"] if self.pretrained else []
        words += [f"p{self.prompt_tokens}"] if self.prompt_tokens is not None else []
        words += [f"n{self.new_tokens}"] if self.new_tokens is not None else []
        return (*words, *self.config, *self.point)

    @property
    def at(self) -> dict[str, int]:
        """Axis of ``--sweep`` -> value."""
        words = (re.fullmatch(r"(\w+)=([1-9][0-9]{0,17})", word) for word in self.point)
        return {word[1]: int(word[2]) for word in words if word}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One of the environments that a run compares (``--envs``): a Python interpreter with its packages."""

    name: str  # the name that the user gave
    python: str  # path of the interpreter
    asked: str  # the user's text: a path, or requirements such as `torch==2.2.2`
    torch: str = ""  # its version when the run was planned


def of_environment(compiler: str, environment: str) -> str:
    """``inductor@new``: the name of a candidate in one of several environments."""
    return f"{compiler}@{environment}"


def eager_of(environment: str) -> str:
    """Eager's name among the candidates: ``eager@new``, or ``eager`` of a job without environments."""
    return of_environment(EAGER_START, environment) if environment else EAGER_START


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case on one device at one precision, with all its candidates: one worker's work."""

    case: Case  # the model
    device: str  # `cpu`, `cuda`, `cuda:1`
    dtype: str  # the precision of the candidates, a word of `--dtypes`
    candidates: tuple[str, ...]  # all compilers of this job, in order
    protocol: Protocol = field(default_factory=Protocol)  # how the job is measured
    options: CompilerOptions = field(default_factory=CompilerOptions)  # options of the compilers
    baseline_dtype: str | None = None  # eager's precision, if it differs from the candidates'
    # candidates that cannot run here, with the reason
    unavailable: dict[str, str] = field(default_factory=dict)
    extras: Extras = field(default_factory=Extras)  # additional data to collect
    # of `--envs`, the reference first
    environments: tuple[Environment, ...] = ()
    # candidates that are functions: `file.py:function`
    own_compilers: dict[str, str] = field(default_factory=dict)

    @property
    def option_words(self) -> tuple[str, ...]:
        """The differences from the plain job of this case, as words: () for the plain job."""
        options = tuple(identity(self.options))
        words = [f"vs_{self.baseline_dtype}"] if self.baseline_dtype is not None else []
        words += [name for name, value in options if value is True]
        words += [value for _, value in options if isinstance(value, str)]
        words += ["envs_" + "_".join(env.name for env in self.environments)] if self.environments else []
        return (*words, *(word for _, value in options if isinstance(value, tuple) for word in value))

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


@lru_cache(maxsize=16)  # reports call it repeatedly with the same arguments
def _file_name(suite: str, parts: tuple[str, ...]) -> str:
    plain = "-".join(parts)
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain)[:120].lstrip(".")
    if safe == plain and "/" not in suite:
        return safe
    # a name may be any Python string, even one with half a surrogate pair
    whole = "\0".join((suite, *parts)).encode(errors="surrogatepass")
    digest = hashlib.sha256(whole).hexdigest()[:8]
    return f"{safe}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Every variant timed once. All numbers are means over the steps of a sample."""

    order: tuple[str, ...]  # the variants, in the order in which they ran; `baseline` is eager
    seconds: dict[str, float]  # by variant: time of one step
    minor_faults: dict[str, float]  # by variant: page faults of one step
    # by variant: time of the prefill; text generation only
    prefill_s: dict[str, float] = field(default_factory=dict)
    index: int = 0  # number of the round in its process, which the parent counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The paired samples of one candidate, in the order of the rounds (all columns have the same length)."""

    baseline_s: tuple[float, ...]
    candidate_s: tuple[float, ...]  # time of one step: the mean over the steps of the sample
    baseline_position: tuple[int, ...]
    candidate_position: tuple[int, ...]  # position in the random order of the round, from 0
    baseline_minor_faults: tuple[float, ...]
    candidate_minor_faults: tuple[float, ...]  # page faults of one step
    iterations_per_sample: int  # steps in one sample, the same for every variant
    baseline_prefill_s: tuple[float, ...] = ()
    candidate_prefill_s: tuple[float, ...] = ()  # text generation only: time until the first new token
    # number of rounds of each process, one after the other; empty: one process
    rounds_by_process: tuple[int, ...] = ()
    reference_s: tuple[float, ...] = ()  # with `--envs`: eager of the reference environment in the same round
    # its position; positions then count over all variants
    reference_position: tuple[int, ...] = ()
    # number of the round in its process, from 0; it joins the samples of a job
    round_index: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.baseline_s)

    @property
    def rounds_of_each(self) -> tuple[int, ...]:
        """The number of rounds of each process, also of a single one."""
        return self.rounds_by_process or (len(self),)

    @property
    def process_of_round(self) -> tuple[int, ...]:
        """The number of the process, from 0, that each round ran in."""
        return tuple(number for number, count in enumerate(self.rounds_of_each) for _ in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """One compared tensor: its distance from the reference for candidate and eager, in the tensor's unit."""

    name: str  # for example `gradient.layer.weight`
    numel: int  # number of elements
    scale: float  # root mean square of the reference
    eager_rmse: float
    candidate_rmse: float  # root mean square error
    allowed: float  # the limit of `candidate_rmse`
    candidate_max: float
    # the candidate's error in the worst part, and its limit; 0: not judged (`scaled`: of the worst element)
    allowed_max: float
    failure: str | None = None  # the fault; null if the tensor passed
    slope: float | None = None
    eager_slope: float | None = None
    # projection of the error on the reference (0.01: 1 % too large), and its limit; null: not judged
    allowed_slope: float | None = None
    noisy_rmse: float | None = None  # the largest error of eager and noisy eager; null: another rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where a candidate goes wrong (``--localize``). ``stage`` is empty if this could not be found."""

    # `capture`, `AOTAutograd`, `decompositions` or `code generation`; empty: not found, `note` says why
    stage: str
    compiler: str = ""  # the compiler that ends with this stage
    module: str = ""
    # the smallest submodule that fails when compiled alone; no name: the whole model
    module_class: str = ""
    why: str = ""  # its worst tensor, and why it fails
    trials: int = 0  # submodules that were compiled
    repro: str = ""  # the script that shows the fault
    note: str = ""  # why there is no result, or why a smaller submodule may fail, too
    bitwise: bool = False  # `--localize-bitwise`: whose bits differ, right or wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """The result of a parity check."""

    rule: str  # `noise` or `field`; `scaled` in files of before December 2026
    reference: str  # `fp64`, or `eager` if no fp64 run was possible
    tolerance: float  # the relative error that does not matter; `field`: `tol`
    tensors: int
    failed: int  # tensors that were compared, and those that fail
    worst: TensorError | None  # the first tensor that fails, else the nearest to its limit
    eager_bit_equal: bool  # two runs of eager were equal bit for bit
    eager_spread: float  # distance between the two runs of eager, relative to a tensor's size
    multiplier: float | None = None  # older records: `m` of `scaled`
    # tensors that are not judged: noisy eager changes them by more than 30 %
    noise_tensors: tuple[str, ...] = ()
    # tensors that were beyond a limit on some data, as noisy eager is
    sensitive_tensors: tuple[str, ...] = ()
    random: str = ""  # with `cannot_judge`: the calls in eager's step that draw random numbers
    found_by: str = ""  # the check behind `worst` and `failed`; empty: the first or third call
    steps: int = 0  # consecutive steps that were compared; 0: none, or an older file
    other_data: tuple[str, ...] = ()  # what was changed in place after the compilation: `inputs`, `weights`
    not_checked: tuple[str, ...] = ()  # checks that were not possible, each with the reason
    resolution_median: float | None = None
    # the permitted RMS error of a tensor / its size: median and largest, without noise tensors
    resolution_largest: float | None = None
    resolution_outputs: float | None = None
    resolution_gradients: float | None = None  # the largest of outputs and loss, and of gradients
    fine: float | None = None  # share of all values that were judged to 1 % or better
    used: float | None = None  # the largest share of a limit that a tensor within its limits uses
    # older records: the precision whose errors look alike
    lower_precision: str = ""
    unjudged: str = ""  # why eager's results do not allow a judgment
    where: Where | None = None  # null: no failure, or no `--localize`
    # of a candidate that is approximate by design: the lowest signal-to-noise ratio of a tensor, dB
    sqnr_db: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model and the inputs as they were built."""

    parameters: int
    parameter_bytes: int  # as built
    input_shapes: tuple[str, ...]  # for example `input.0: int64[8, 128]`
    batch_size: int | None = None  # that ran: the first dimension of the first input that has one
    remarks: tuple[str, ...] = ()  # changes to the model and its inputs, and assumptions
    generators: tuple[str, ...] = ()  # random number generators that eager's step draws from


FAILURE_PHASES = (
    *("plan", "start", "import", "open", "build", "eager", "fp64", "export", "cross parity", "prepare"),
    *("compile", "check", "preview", "warm up", "measure", "trajectory", "finish", "conclude", "localize"),
    "runner",
)
"""Where a job can fail, in the order in which a job comes to them; ``docs/FORMAT.md`` explains each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a candidate or a job failed: the exception or signal, the phase, and the log."""

    kind: str  # the exception's class, `SIGSEGV`, `exit 3`, `timeout`
    message: str  # its words
    phase: str  # where it happened, see *Phases*
    log: str | None = None  # of the case, relative to the run's folder


Scalar = float | int | str | bool | None

COLD, WARM, CACHE_FILE, PACKAGE, AS_FOUND = "cold", "warm", "cache file", "package", "as found"
EAGER_START, SIZES = "eager", "sizes"
"""What a compilation begins with (``Compilation.start``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation of a candidate in a fresh process, beside that of the process that is timed."""

    # `cold`: empty caches; `warm`: those that the cold one of this round has filled; `as found`: a later
    # process of `--processes`; of `--start-up` also `cache file`, `package` and `eager`; of `--shapes`
    # `eager` and `sizes`
    start: str
    round: int  # in a round, all candidates compile in a random order
    # `compilation_latency_s` and the like, see *Metrics*
    metrics: dict[str, Scalar] = field(default_factory=dict)
    # how the process ended; `--start-up`: the parity of what was loaded, in the first round
    status: Status = Status.PASS_DUE_TO_SKIP
    failure: str = ""  # why it compiled nothing, or what is wrong
    # `--start-up`, `--shapes`: seconds of each step of the process
    first_calls_s: tuple[float, ...] = ()
    stored_bytes: int | None = None  # size of what it began with


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One candidate in one process. Numbers that do not exist are None, never 0.

    A result, of which every (job, candidate) has exactly one, is derived from its records
    (``runner.store.joined``): in memory it has the samples of all processes, and ``compilations``.
    """

    job: Job  # what was requested, and how it is measured
    # the compiler; `eager` is the A/A control. `inductor@new` is compared with eager of its own
    # environment, `eager@new` with that of the reference
    candidate: str
    status: Status  # how the candidate ended, see *Status*
    parity: Parity | None = None  # null: it was not checked
    samples: Samples | None = None  # the paired times; null: nothing was timed
    system_samples: Samples | None = None  # older records: with malloc as the system has it
    # numbers, texts and booleans by name, see *Metrics*
    metrics: dict[str, Scalar] = field(default_factory=dict)
    model: ModelFacts | None = None  # facts of the model as built
    # facts of the worker: processor, device, threads, allocator, versions
    environment: dict[str, Scalar] = field(default_factory=dict)
    failure: Failure | None = None  # why there is no number
    reproduce: str = ""  # the command that measures this case again
    notes: tuple[str, ...] = ()  # remarks for the reader
    started: str = ""
    ended: str = ""  # UTC, ISO 8601
    env: str = ""  # the candidate's environment; empty: the runner's interpreter
    # of eager of this environment against the reference's
    env_parity: Parity | None = None
    # seconds of the calls before timing; three count as compilation
    first_calls_s: tuple[float, ...] = ()
    process: int = 0  # its number among the processes of the job that are timed, from 0
    # what it is a process of: `compile_runs`, `start_up`, `shapes`, `checked` (the parity of what a start
    # has loaded); of `--why` `look` and `together`; empty: it is timed
    experiment: str = ""
    start: str = ""  # of an experiment: what the process began with, see *Compilation*
    round: int = 0  # of an experiment, from 0
    stored_bytes: int | None = None  # `--start-up`: size of what the process began with
    stored: tuple[str, ...] = ()  # of a cold start: the starts for which it has stored something
    # of the compile caches when the process began: `empty`, `filled` (by this run, or by its cold start),
    # `as found`
    caches: str = ""
    # `--confirm`: the gates that had selected the candidate; empty: measured before any gate was asked
    confirms: str = ""
    # records of before format 3, and results: those of other processes
    compilations: tuple[Compilation, ...] = ()
    # why no further round was timed: `fixed count`, `precise`, `clear verdict`, `most rounds`,
    # `out of time`, `out of budget`, `stopped`, `needs processes` or `a new process says more`
    rounds_ended: str = ""
    # sd of the log speedup between processes that the interval of one process assumes
    assumed_between_sd: float | None = None
    # older records: date of its calibration
    calibrated: str = ""
    numerics: Numerics | None = None
    numerics_controls: tuple[Numerics, ...] = ()  # `--numerics`: of the candidate, and of eager itself
    trajectory: Trajectory | None = None  # null: no `--trajectory`
    schema_version: int = SCHEMA_VERSION  # the version of this line
