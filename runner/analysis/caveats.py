"""What the averages of a run do not cover, as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from harness.devices import of, type_of
from harness.schema import Mode, Scalar, Status
from runner.analysis.comparison import Comparison
from runner.analysis.digits import share_text
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.labels import counted, is_scaled, ran_batch

NEWEST: Mapping[str, str] = MappingProxyType({"torch": "2.15.0", "torchvision": "0.29.2"})
"""The newest versions that this program was tested with, by ``make versions``."""

STEP = "a training step is forward, loss and backward (not a step of your own), with no optimizer step"


def caveats(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The sentences that hold for this run. A run without records has none."""
    if not comparisons:
        return ()
    sentences = (
        *_of_some_jobs(comparisons),
        _skipped(comparisons),
        _partly_compiled(comparisons),
        _warm_caches(comparisons),
        _prepared_beside(comparisons),
        _opposite_ways(comparisons),
        _other_baseline(comparisons),
        _environments(comparisons),
        untested(c.record.environment for c in comparisons),
        *_remarks(comparisons),
        _borrowed(comparisons),
        _of_every_run(comparisons),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _of_every_run(comparisons: Sequence[Comparison]) -> str | None:
    """The limits of an ordinary run, in one sentence."""
    training = any(c.record.job.case.mode is Mode.TRAINING for c in comparisons)
    limits = (
        "" if all(_changes_shapes(c) for c in comparisons) else "shapes are fixed",
        STEP if training else "",
        *_assumptions(comparisons),
    )
    text = "; ".join(limit for limit in limits if limit)
    return f"Limits of every such run: {text}. docs/MEASURING.md has more." if text else None


def _assumptions(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """What intervals of one process assume: ``training: aot_eager 0.4 %, inductor 0.6 %``, by source."""
    sources: dict[str, dict[str, dict[str, None]]] = {}
    for c in comparisons:
        if c.estimate is not None and c.estimate.assumed_sd is not None:
            text = f"{c.compiler} {share_text(c.estimate.assumed_sd)}"
            modes = sources.setdefault(age_text(c.record.calibrated, c.record.started), {})
            modes.setdefault(c.record.job.case.mode.value, {})[text] = None
    for calibrated, modes in sources.items():
        values = "; ".join(f"{mode}: {', '.join(texts)}" for mode, texts in modes.items())
        kind, measured = (
            (f"this machine's variation between processes, calibrated on {calibrated},", "--processes=N")
            if calibrated
            else ("an assumed variation between processes", "--calibrate or --processes=N")
        )
        yield f"intervals of one process include {kind} ({values}; {measured} measures it)"


def age_text(calibrated: str, day: str) -> str:
    """``2026-11-20, 3 days before``, of two ISO 8601 dates; "" without a calibration."""
    try:
        age = (date.fromisoformat(day[:10]) - date.fromisoformat(calibrated)).days
    except ValueError:
        return calibrated
    return f"{calibrated}, {counted(age, 'day')} before" if age else f"{calibrated}, the same day"


def _borrowed(comparisons: Iterable[Comparison]) -> str | None:
    names = dict.fromkeys(
        type_of(c.record.job.device)
        for c in comparisons
        if c.estimate is not None
        and c.estimate.assumed_sd is not None
        and not c.record.calibrated
        and of(c.record.job.device).accelerated
    )
    if not names:
        return None
    return (
        f"Verdicts of one process on {', '.join(names)} assume a variation between processes that was "
        "measured on a CPU. It may be larger here: --calibrate measures it."
    )


Holds = Callable[[Comparison], bool]


def _of_some_jobs(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The sentences of ``COUNTED`` that hold for some jobs, with their number."""
    total = len({c.record.job.key for c in comparisons})
    for holds, sentence in COUNTED:
        count = len({c.record.job.key for c in comparisons if holds(c)})
        if count:
            yield sentence.format(count=count, total=total)


def _changes_shapes(comparison: Comparison) -> bool:
    options = comparison.record.job.options
    return options.dynamic_shapes or options.dynamic_batch


def _cut_batch(comparison: Comparison) -> bool:
    case = comparison.record.job.case
    return (case.batch_size or 0) < (case.published_batch_size or 0)


def _ran_less(comparison: Comparison) -> bool:
    ran, planned = ran_batch(comparison.record), comparison.record.job.case.batch_size
    return ran is not None and planned is not None and ran < planned


def _without_fp64(comparison: Comparison) -> bool:
    parity = comparison.record.parity
    return parity is not None and parity.reference == "eager"


def _few_processes(comparison: Comparison) -> bool:
    estimate = comparison.estimate
    several = bool(comparison.record.job.environments)
    return several and estimate is not None and estimate.processes < LEAST_ACROSS


COUNTED: tuple[tuple[Holds, str], ...] = (
    (
        _cut_batch,
        "The batch is smaller than the published one for {count} of {total} jobs (column batch).",
    ),
    (
        lambda c: is_scaled(c.record.job.case),
        "The model is smaller than the published one for {count} of {total} jobs (named in brackets).",
    ),
    (
        _ran_less,
        "The batch did not fit in memory in {count} of {total} jobs, so it was halved there, for eager, too.",
    ),
    (
        lambda c: not c.record.job.protocol.accuracy,
        "Parity was not checked (--performance): a fast candidate may compute wrong results.",
    ),
    (
        _without_fp64,
        "In {count} of {total} jobs there is no run in fp64 to compare with: parity is judged against eager.",
    ),
    (
        _few_processes,
        f"Verdicts across environments need {LEAST_ACROSS} processes a side: use --processes={LEAST_ACROSS}.",
    ),
    (
        _changes_shapes,
        "In {count} of {total} jobs a step runs batches of several sizes, as dynamic shapes.",
    ),
)


def _opposite_ways(comparisons: Iterable[Comparison]) -> str | None:
    lines = [
        (c.baseline_ms - c.candidate_ms) * (c.speedup - 1)
        for c in comparisons
        if c.baseline_ms is not None and c.candidate_ms is not None and c.speedup is not None
    ]
    opposite = sum(line < 0 for line in lines)
    if not opposite:
        return None
    return (
        f"In {opposite} of {len(lines)} lines the times (ms) and the speedup disagree on the faster side. "
        "Trust the speedup: changes of the machine's speed cancel in the ratio of each round."
    )


def _skipped(comparisons: Sequence[Comparison]) -> str | None:
    skipped = [c.record for c in comparisons if c.record.status is Status.SKIP]
    why = dict.fromkeys(f"{r.job.case.name}: {r.failure.message}" for r in skipped if r.failure is not None)
    if not skipped:
        return None
    return f"Not run, and not counted ({counted(len(why), 'model')}): {'; '.join(why)}."


def _remarks(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """What suites changed or assumed in their models; each remark once."""
    jobs: dict[str, dict[str, None]] = {}
    for record in (c.record for c in comparisons):
        for remark in record.model.remarks if record.model is not None else ():
            jobs.setdefault(remark, {})[record.job.key] = None
    count = len({c.record.job.key for c in comparisons})
    return tuple(
        f"{remark[0].upper()}{remark[1:]}{f' (in {len(keys)} of {count} jobs)' if count > 1 else ''}."
        for remark, keys in jobs.items()
    )


def _other_baseline(comparisons: Iterable[Comparison]) -> str | None:
    jobs = (c.record.job for c in comparisons)
    others = dict.fromkeys(job.baseline_dtype for job in jobs if job.baseline_dtype not in (None, job.dtype))
    if not others:
        return None
    return (
        f"Every precision is timed against eager {', '.join(map(str, others))}. Parity is checked against "
        "eager in the candidate's own precision."
    )


def _environments(comparisons: Iterable[Comparison]) -> str | None:
    jobs = (c.record.job for c in comparisons)
    names = ", ".join(dict.fromkeys(job.environments[0].name for job in jobs if job.environments))
    if not names:
        return None
    return (
        "compiler@environment is compared with eager of its own environment, and eager@environment with "
        f"eager of {names}. The tables of environments compare all with eager of {names}."
    )


def _partly_compiled(comparisons: Iterable[Comparison]) -> str | None:
    partly = dict.fromkeys(
        c.record.candidate
        for c in comparisons
        if c.record.metrics.get("compiled_region") == "forward" and c.record.job.case.mode is Mode.TRAINING
    )
    if not partly:
        return None
    return f"These candidates compile only the forward, and the loss runs in eager: {', '.join(partly)}."


def _warm_caches(comparisons: Iterable[Comparison]) -> str | None:
    looked_up = [
        c.record.metrics for c in comparisons if c.record.metrics.get("compile_cache_misses") is not None
    ]
    hits = sum(bool(metrics.get("compile_cache_hits")) for metrics in looked_up)
    if not hits:
        return None
    saved = [s for m in looked_up if isinstance(s := m.get("compile_cache_saved_s"), (int, float))]
    longer = (
        f"compiling what the caches held took about {sum(saved):.0f} s"
        if sum(saved) >= 1
        else "with cold caches compilation takes longer"
    )
    return f"Compile caches were warm for {hits} of {len(looked_up)} compilations: {longer}."


def _prepared_beside(comparisons: Iterable[Comparison]) -> str | None:
    beside = [n for c in comparisons if isinstance(n := c.record.metrics.get("prepared_beside"), int) and n]
    if not beside:
        return None
    return (
        f"Compilation times with a star (*) were taken while up to {max(beside)} other jobs compiled. They "
        "are longer than alone; the record's compile_cpu_s is the processor time. --prepare-ahead=1 compiles "
        "one job at a time. Every job was timed alone."
    )


def untested(environments: Iterable[Mapping[str, Scalar]]) -> str | None:
    """One sentence that names the packages newer than every tested version; None if there are none."""
    all_facts = [*environments]
    untested_versions = {
        package: newest
        for package, tested in NEWEST.items()
        if (newest := max((_release(facts.get(package)) for facts in all_facts), default=Version("0")))
        > Version(tested)
    }
    if not untested_versions:
        return None
    newer = " and ".join(f"{package} {version}" for package, version in untested_versions.items())
    tested = " and ".join(f"{package} {NEWEST[package]}" for package in untested_versions)
    return f"{newer}: newer than every version that torchduet was tested with (up to {tested})."


def _release(version: Scalar) -> Version:
    """The release, without suffixes of builds and pre-releases: a nightly counts as its release."""
    try:
        return Version(Version(str(version)).base_version)
    except InvalidVersion:
        return Version("0")
