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
from harness.settings import identity

# History of the record format. Readers accept every version listed here.
#   1  2026-11  first version
#   2  2026-11  a case has scale, loss, config, pretrained, skip, tolerance and token counts, and may have
#               no batch size of its own; samples have prefill_s; a model has batch_size
SCHEMA_VERSION = 2

BASELINE = "baseline"
"""Name of the eager variant that every candidate is paired with."""

WHOLE = ""
"""The key of the whole job's metrics in a dict of metrics by variant."""

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
    APPROXIMATE = "approximate"  # differs from eager by design: in no average and no pass rate
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

    mode: Mode
    device_type: str  # of harness.devices
    scale: str  # one of SCALES
    folder: str = ""  # where a suite finds models that are not its own (``--torchbench``); "": by import


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure: a model of a suite, in one mode, at one size.

    ``batch_size`` is the batch that runs, ``published_batch_size`` the batch of the case's source; reports
    show both if they differ. Both are None if only the model's own code knows its batch.
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
    no_skip: bool = False  # its suite skips it, and it was asked for all the same
    prompt_tokens: int | None = None  # generation only, as is new_tokens
    new_tokens: int | None = None
    folder: str = ""  # as in the ``Setting``

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
        return (*words, *self.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One of the environments that a run compares (``--envs``): a Python interpreter with its packages."""

    name: str
    python: str  # path of the interpreter
    asked: str  # the user's text: that path, or requirements such as "torch==2.2.2"
    torch: str = ""  # the version that planning found


def of_environment(compiler: str, environment: str) -> str:
    """``inductor@new``: the name of a candidate in one of several environments."""
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
    own_compilers: dict[str, str] = field(default_factory=dict)  # candidate -> "file.py:function"

    @property
    def option_words(self) -> tuple[str, ...]:
        """The differences from the plain job of this case, as words: () for the plain job."""
        options = tuple(identity(self.options))
        words = [f"vs_{self.baseline_dtype}"] if self.baseline_dtype is not None else []
        words += [name for name, value in options if value is True]
        words += [value for _, value in options if isinstance(value, str)]
        words += ["envs_" + "_".join(one.name for one in self.environments)] if self.environments else []
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
    """Every variant timed once, in the order ``order``.

    ``seconds[v]`` is the time of one step of variant v (the mean over the
    sample's iterations); ``minor_faults[v]`` the page faults of one step.
    """

    order: tuple[str, ...]
    seconds: dict[str, float]
    minor_faults: dict[str, float]
    prefill_s: dict[str, float] = field(default_factory=dict)  # generation only: the part before decoding
    index: int = 0  # the number of the round in its process, which the parent counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The paired samples of one candidate, in the order of the rounds (all columns have the same length).

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
    rounds_by_process: tuple[int, ...] = ()  # with several processes: the rounds of each, in their order
    # several environments: eager of the reference environment in the same round
    reference_s: tuple[float, ...] = ()
    reference_position: tuple[int, ...] = ()
    round_index: tuple[int, ...] = ()  # the number of the round in its process; () in older records

    def __len__(self) -> int:
        return len(self.baseline_s)

    @property
    def process_of_round(self) -> tuple[int, ...]:
        """The number of the process, from 0, that each round ran in."""
        counts = self.rounds_by_process or (len(self),)
        return tuple(number for number, count in enumerate(counts) for _ in range(count))


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
    slope: float | None = None  # projection of the error on the truth: 0.01 is a result 1 % too large
    eager_slope: float | None = None
    allowed_slope: float | None = None  # None: a slope is not judged here


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where a candidate goes wrong (``--localize``). ``stage`` is empty if this could not be found."""

    stage: str  # "capture", "AOTAutograd", "decompositions" or "code generation"
    compiler: str = ""  # the compiler that ends with this stage
    module: str = ""  # the smallest submodule that fails when it is compiled alone; "": the whole model
    module_class: str = ""
    why: str = ""  # the worst tensor of this submodule, and why it fails
    trials: int = 0  # submodules that were compiled
    repro: str = ""  # the script that shows the fault, relative to the run folder
    note: str = ""  # why the search has no result, or is not complete
    everywhere: bool = False  # parts of all classes that were tried fail: the whole backend is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """The result of a parity check.

    ``worst`` is the tensor closest to (or furthest beyond) its limit.
    ``reference`` is "fp64", or "eager" if no fp64 run could be made.
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
    noise_tensors: tuple[str, ...] = ()  # zeros would pass: eager has no correct digit in them
    sensitive_tensors: tuple[str, ...] = ()  # passed only in comparison with perturbed weights
    random: str = ""  # calls in eager's step that draw random numbers, if these may explain a failure
    found_by: str = ""  # the check that ``worst`` and ``failed`` come from; "": the first or the third call
    steps: int = 0  # consecutive steps that were compared
    other_data: tuple[str, ...] = ()  # of "weights" and "inputs", what was changed after the compilation
    not_checked: tuple[str, ...] = ()  # sentences: which checks were not possible, and why
    resolution_median: float | None = None  # permitted RMS error / size of a tensor: the median
    resolution_largest: float | None = None  # and the largest, of the tensors that are not noise
    lower_precision: str = (
        ""  # what the errors look like, where a precision lower than asked may be the cause
    )
    unjudged: str = ""  # why parity cannot be judged, if eager's own results are the cause
    where: Where | None = None  # of a failure, with --localize


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The model and the inputs as they were built."""

    parameters: int
    parameter_bytes: int
    input_shapes: tuple[str, ...]
    batch_size: int | None = None  # first size of the first input that has one
    remarks: tuple[str, ...] = ()  # sentences: what was changed or assumed about the model and its inputs
    generators: tuple[str, ...] = ()  # the random generators that eager's step uses


PHASES = (
    *("plan", "start", "import", "open", "build", "eager", "fp64", "export", "perturb", "cross parity"),
    *("prepare", "compile", "check", "warm up", "measure", "finish", "conclude", "localize"),
    "runner",
)
"""Where a job can fail, in the order in which a job comes to them; ``docs/FORMAT.md`` explains each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a candidate or a job failed: the exception or signal, the phase, and the log."""

    kind: str  # exception class, "SIGSEGV", "exit 3", "timeout"
    message: str
    phase: str  # one of PHASES
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
    env_parity: Parity | None = None  # cross-environment parity of that environment's eager
    # seconds of each of the candidate's calls before timing, in order: the first call compiles
    first_calls_s: tuple[float, ...] = ()
    rounds_ended: str = ""  # why no further round was timed, a word of analysis.measuring_ended; "": unknown
    # the standard deviation of the log speedup between processes that its interval assumes; None: not known
    assumed_between_sd: float | None = None
    schema_version: int = SCHEMA_VERSION
