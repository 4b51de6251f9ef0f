"""Records made up for tests: round numbers with a seeded wobble, measured nowhere."""

import io
import itertools
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from rich.console import Console

from harness.schema import (
    COLD,
    Case,
    Compilation,
    Environment,
    Failure,
    Job,
    Mode,
    ModelFacts,
    Numerics,
    Parity,
    Protocol,
    Record,
    Samples,
    Scalar,
    Status,
    TensorError,
)
from runner.analysis.derive import compare, summarize
from runner.analysis.results import Finding, Result
from runner.reports.console import print_answer, print_report

T = TypeVar("T")
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

ENVIRONMENT: dict[str, Scalar] = {
    "python": "3.0.0",
    "torch": "0.0.0+synthetic",
    "cpu": "Synthetic CPU",
    "cpu_count": 8,
    "threads": 4,
    "device": "cpu",
    "device_name": "Synthetic CPU",
    "cuda": None,
}
COUNTERS: dict[str, Scalar] = {
    "calls_captured": 12,
    "unique_graphs": 1,
    "graph_breaks": 0,
    "unique_graph_breaks": 0,
    "autograd_captures": 0,
    "autograd_compiles": 0,
    "cudagraph_skips": 0,
}
CANDIDATES = ("eager", "aot_eager", "inductor", "torchscript")
ASSUMED_SD = {"eager": 0.0025, "aot_eager": 0.004, "inductor": 0.006, "torchscript": 0.006}
"""The variation between processes that made-up records assume."""
HOSTILE_SUITE = "/somewhere/my suites/=cmd's.py"
HOSTILE_NAMES = (
    "pipe|tick`bracket[0]*star*",
    "<script>alert(1)</script>",
    '=HYPERLINK("x")',
    "[red]markup[/red] $x_1$ @someone",
    "two\nlines \x1b[31mand colour",
    "網路模型",
)


class Clock:
    """Stands still, but for what a test adds to ``now``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sampled(every: int, *parts: Iterable[object]) -> list[Any]:
    """All combinations of a long series of tests. Each ``every``-th stays quick, the others are slow."""
    rows = enumerate(itertools.product(*parts))
    return [pytest.param(*row, marks=[pytest.mark.slow] if place % every else []) for place, row in rows]


def known(value: T | None) -> T:
    """The value, where None would be a failure of the test."""
    assert value is not None
    return value


def make_job(name: str = "model", **changes: object) -> Job:
    """A training job of suite "toys" on the CPU in float32; ``changes`` are fields of case or job."""
    case = Case(suite="toys", name=name, mode=Mode.TRAINING, batch_size=8, published_batch_size=8)
    job = Job(case=case, device="cpu", dtype="float32", candidates=CANDIDATES)
    fields = Case.__dataclass_fields__
    case = replace(case, **{k: v for k, v in changes.items() if k in fields})  # type: ignore[arg-type]
    rest = {k: v for k, v in changes.items() if k not in fields}
    return replace(job, case=case, **rest)  # type: ignore[arg-type]


def make_samples(
    *, speedup: float = 1.0, jitter: float = 0.01, rounds: int = 20, machine: str = "", seed: str = ""
) -> Samples:
    """Pairs whose ratio is ``speedup`` up to a uniform jitter; both sides share a wobble of +-20 %.

    The same ``machine`` gives the same eager times, as the candidates of one worker have them.
    """
    shared, rng = random.Random(machine), random.Random(seed)
    baseline = tuple(0.01 * (1 + 0.4 * (shared.random() - 0.5)) for _ in range(rounds))
    candidate = tuple(b / speedup * (1 + 2 * jitter * (rng.random() - 0.5)) for b in baseline)
    first = tuple(rng.randrange(2) for _ in range(rounds))
    return Samples(
        baseline_s=baseline,
        candidate_s=candidate,
        baseline_position=first,
        candidate_position=tuple(1 - place for place in first),
        baseline_minor_faults=(0.0,) * rounds,
        candidate_minor_faults=(0.0,) * rounds,
        iterations_per_sample=4,
    )


def with_samples(record: Record, **changes: Any) -> Record:
    """The record, with these fields of its samples."""
    return replace(record, samples=replace(known(record.samples), **changes))


def make_environments(*names: str) -> tuple[Environment, ...]:
    return tuple(Environment(name=name, python=f"/{name}/python", asked=name) for name in names)


def make_parity(status: Status = Status.PASS, *, name: str = "grad.layer.weight") -> Parity:
    failed = 2 if status is Status.FAIL_ACCURACY else 0
    unsteady = status is Status.EAGER_TWO_RUNS_DIFFER
    candidate_rmse = 0.5 if failed else 0.0001
    worst = TensorError(
        name=name,
        numel=4096,
        scale=1.0,
        eager_rmse=0.0001,
        candidate_rmse=candidate_rmse,
        allowed=0.0012,
        candidate_max=candidate_rmse * 4,
        allowed_max=0.014,
        failure=f"RMS error {candidate_rmse:.3g} is above the limit 0.0012" if failed else None,
    )
    return Parity(
        rule="noise",
        reference="fp64",
        tolerance=0.01,
        tensors=10,
        failed=failed,
        worst=worst,
        eager_bit_equal=not unsteady,
        eager_spread=0.05 if unsteady else 0.0,
    )


def make_numerics(run: str = "inductor", **changes: object) -> Numerics:
    """A card without an empty field."""
    counts = {"elements": 100, "elements_of": 2_000_000, "elements_equal": 100, "integers": 0, "undefined": 0}
    texts = {"ulp_largest_in": "loss", "nearer": "equal", "logits": "output"}
    names = [field.name for field in fields(Numerics) if field.type == "float | None"]
    counts |= {"tensors": 2, "tensors_equal": 2, "logits_rows": 8}
    given = {**dict.fromkeys(names, 0.5), **counts, **texts, **changes}
    return Numerics(run=run, **given)  # type: ignore[arg-type]


def make_record(
    job: Job,
    candidate: str = "inductor",
    *,
    status: Status = Status.PASS,
    speedup: float | None = 1.0,
    jitter: float = 0.01,
    rounds: int = 20,
    compilation_s: float = 5.0,
    memory_ratio: float = 1.0,
    metrics: Mapping[str, Scalar] | None = None,
    machine: str = "",
) -> Record:
    """One record. Statuses without a result (crash, timeout...) have neither samples nor metrics.

    ``machine`` other than "" is a worker of its own, with other eager times.
    """
    reached = status.passed or status in (Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER)
    timed = reached and speedup is not None and job.protocol.performance
    numbers: dict[str, Scalar] = {**COUNTERS, "compilation_latency_s": compilation_s}
    numbers["compiled_region"] = "none" if candidate == "eager" else "forward+loss"
    if timed:
        numbers["baseline_peak_memory_bytes"] = 2_000_000_000
        numbers["candidate_peak_memory_bytes"] = round(2_000_000_000 / memory_ratio)
    seed = f"{job.case.name}/{job.dtype}/{candidate}"
    checked = reached and job.protocol.accuracy
    return Record(
        job=job,
        candidate=candidate,
        status=status,
        parity=make_parity(status) if checked else None,
        samples=make_samples(
            speedup=speedup, jitter=jitter, rounds=rounds, machine=f"{job.key}{machine}", seed=seed
        )
        if timed and speedup is not None
        else None,
        metrics={**numbers, **(metrics or {})} if reached else {},
        model=ModelFacts(parameters=1000, parameter_bytes=4000, input_shapes=("input.0: float32[8, 4]",)),
        environment=dict(ENVIRONMENT),
        failure=None if reached else make_failure(status),
        reproduce=f"python suites/toys.py --only='{job.case.name}' --compilers={candidate}",
        started="2026-01-01T00:00:00.000+00:00",
        ended="2026-01-01T00:01:00.000+00:00",
        assumed_between_sd=ASSUMED_SD.get(candidate, ASSUMED_SD["inductor"]),
    )


def together(
    model: str,
    seconds: Mapping[str, float],
    *,
    eager_s: float = 1.0,
    rounds: int = 40,
    seed: int = 0,
    failed: Collection[str] = (),
) -> list[Record]:
    """Candidates of one worker, with these seconds a step. A round wobbles alike for all, eager too."""
    rng = np.random.default_rng([seed, *model.encode()])
    machine = np.exp(rng.normal(0, 0.2, rounds))

    def timed(step_s: float) -> tuple[float, ...]:
        return tuple((step_s * machine * np.exp(rng.normal(0, 0.01, rounds))).tolist())

    job, eager, records = make_job(model, candidates=tuple(seconds)), timed(eager_s), []
    for candidate, step_s in seconds.items():
        status = Status.FAIL_ACCURACY if candidate in failed else Status.PASS
        record = make_record(job, candidate, rounds=rounds, status=status)
        records.append(with_samples(record, baseline_s=eager, candidate_s=timed(step_s)))
    return records


def make_failure(status: Status) -> Failure:
    kinds = {Status.CRASH: "SIGSEGV", Status.TIMEOUT: "timeout", Status.NOT_COMPILED: "NotCompiled"}
    return Failure(
        kind=kinds.get(status, "RuntimeError"),
        message=f"made up | for {status.value}",
        phase="compile",
        log="cases/made-up/output.log",
    )


def control(job: Job, **changes: float) -> Record:
    """The A/A control of a job: 1.00x, with nothing to compile."""
    return make_record(job, "eager", **{"compilation_s": 0.0, **changes})  # type: ignore[arg-type]


def synthetic_run() -> tuple[Record, ...]:
    """Every kind of ending, two suites, two dtypes, names made to break things."""
    gain, noisy, wrong, lost = (make_job(name) for name in ("gains", "noisy", "wrong", "does_not_run"))
    cut = make_job("cut_batch", batch_size=64, published_batch_size=2048, scale="small")
    amp = make_job("gains", dtype="amp")
    forward: dict[str, Scalar] = {"compiled_region": "forward"}
    records = [
        control(gain),
        make_record(gain, "aot_eager", speedup=1.0, jitter=0.005, compilation_s=2.0),
        make_record(gain, "inductor", speedup=1.5, compilation_s=130.0, memory_ratio=1.25),
        make_record(gain, "torchscript", speedup=0.8, memory_ratio=0.75, metrics=forward),
        control(noisy, jitter=0.2),
        make_record(noisy, "aot_eager", speedup=1.0, jitter=0.2),
        make_record(noisy, "inductor", speedup=1.1, jitter=0.4, rounds=10),
        make_record(noisy, "torchscript", speedup=1.2, rounds=3, metrics=forward, machine="again"),
        make_record(wrong, "inductor", status=Status.FAIL_ACCURACY, speedup=3.0),
        make_record(wrong, "torchscript", status=Status.NOT_COMPILED),
        control(wrong),
        make_record(wrong, "aot_eager", speedup=1.03, jitter=0.002, rounds=40),
        make_record(lost, "inductor", status=Status.CRASH),
        make_record(lost, "aot_eager", status=Status.TIMEOUT),
        make_record(lost, "torchscript", status=Status.FAIL_TO_RUN),
        control(lost),
        control(cut),
        make_record(cut, "aot_eager", speedup=0.97, jitter=0.004),
        make_record(cut, "inductor", speedup=1.25),
        make_record(cut, "torchscript", status=Status.OOM),
        control(amp),
        make_record(amp, "aot_eager", speedup=0.9, jitter=0.002, metrics={"graph_breaks": 3}),
        make_record(amp, "inductor", speedup=2.0),
        make_record(amp, "torchscript", status=Status.EAGER_TWO_RUNS_DIFFER),
    ]
    for place, name in enumerate(HOSTILE_NAMES):
        job = make_job(name, suite=HOSTILE_SUITE, candidates=("inductor",))
        records.append(make_record(job, "inductor", speedup=1.0 + place / 10))
    return tuple(records)


def comparison_of(record: Record) -> Result:
    (comparison,) = compare([record])
    return comparison


def finding(records: Sequence[Record], title: str) -> Finding:
    """The one warning whose title begins so."""
    (warning,) = (warning for warning in summarize(records).warnings if warning.title.startswith(title))
    return warning


def compiled(start: str, seconds: float, round_: int = 0, **metrics: float) -> Compilation:
    return Compilation(start=start, round=round_, metrics={"compilation_latency_s": seconds, **metrics})


def compiled_cold(
    record: Record,
    seconds: float,
    rng: random.Random,
    shared: Sequence[float] = (1.0,) * 5,
    noise: float = 0.03,
) -> Record:
    """With a cold compilation for each factor of ``shared``; ``noise``: of their logarithms."""
    latencies = (seconds * factor * math.exp(rng.gauss(0.0, noise)) for factor in shared)
    runs = tuple(compiled(COLD, latency, number) for number, latency in enumerate(latencies))
    return replace(record, compilations=runs)


def accuracy_run() -> tuple[Record, ...]:
    """Nothing timed."""
    protocol = Protocol(performance=False)
    jobs = [make_job(name, protocol=protocol, candidates=("inductor",)) for name in ("one", "two")]
    return (make_record(jobs[0]), make_record(jobs[1], status=Status.FAIL_ACCURACY))


def printed(records: Sequence[Record], width: int, **settings: Any) -> str:
    """The console's report of these records, as that console would show it."""
    file = io.StringIO()
    summary, console = summarize(records), Console(file=file, width=width, **settings)
    print_report(summary, console)
    print_answer(summary, console)
    return file.getvalue()
