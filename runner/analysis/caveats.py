"""What the averages of a run do not cover, as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from harness.declared import finite
from harness.devices import of, type_of
from harness.loading.toml_file import read_toml
from harness.schema import Mode, Scalar, Status
from runner.analysis.comparison import Comparison
from runner.analysis.digits import share_text
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.labels import counted, is_scaled, ran_batch

NEWEST: Mapping[str, str] = MappingProxyType({"torch": "2.15.0", "torchvision": "0.29.2"})
"""The newest versions that this program was tested with, by ``make versions``."""

WORDS = Path(__file__).with_suffix(".toml")
HEAP = "malloc keeps its heap, so a compiler gains nothing by fewer page faults (--allocator=both adds it)"
STEP = "a training step is forward, loss and backward (not a step of your own), with {}"
UPDATED = "a step of {} (each sample begins with the same weights)"


Holds = Callable[[Comparison], bool]
Name = Callable[[Comparison], str]


def caveats(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The sentences that hold for this run. A run without records has none."""
    if not comparisons:
        return ()
    sentences = (
        *(_said(name, sentence, comparisons) for name, sentence in read_toml(WORDS).items()),
        _warm_caches(comparisons),
        _prepared_beside(comparisons),
        _opposite_ways(comparisons),
        untested(c.record.environment for c in comparisons),
        *_remarks(comparisons),
        _of_every_run(comparisons),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _said(name: str, sentence: str, comparisons: Sequence[Comparison]) -> str:
    holds, name_of = CAVEATS[name]
    cases = [comparison for comparison in comparisons if holds(comparison)]
    count, total = (len({c.record.job.key for c in some}) for some in (cases, comparisons))
    names = ("; " if name == "skipped" else ", ").join(dict.fromkeys(filter(None, map(name_of, cases))))
    return sentence.format(count=count, total=total, names=names, least=LEAST_ACROSS) if cases else ""


def _cut_batch(comparison: Comparison) -> bool:
    case = comparison.record.job.case
    return (case.batch_size or 0) < (case.published_batch_size or 0)


def _ran_less(comparison: Comparison) -> bool:
    ran, planned = ran_batch(comparison.record), comparison.record.job.case.batch_size
    return ran is not None and planned is not None and ran < planned


def _few_processes(comparison: Comparison) -> bool:
    estimate = comparison.estimate
    several = bool(comparison.record.job.environments)
    return several and estimate is not None and estimate.processes < LEAST_ACROSS


def _changes_shapes(comparison: Comparison) -> bool:
    options = comparison.record.job.options
    return options.dynamic_shapes or options.dynamic_batch


def _partly_compiled(comparison: Comparison) -> bool:
    record = comparison.record
    return record.metrics.get("compiled_region") == "forward" and record.job.case.mode is Mode.TRAINING


def _borrowed(comparison: Comparison) -> bool:
    estimate, record = comparison.estimate, comparison.record
    assumed = estimate is not None and estimate.assumed_sd is not None
    return assumed and not record.calibrated and of(record.job.device).accelerated


def _keeps_heap(comparison: Comparison) -> bool:
    job = comparison.record.job
    return comparison.n > 0 and job.extras.allocator == "default" and not of(job.device).accelerated


def _why_skipped(comparison: Comparison) -> str:
    record = comparison.record
    return f"{record.job.case.name}: {record.failure.message}" if record.failure is not None else ""


def _unnamed(_: Comparison) -> str:
    return ""


CAVEATS: Mapping[str, tuple[Holds, Name]] = MappingProxyType(
    {
        "cut_batch": (_cut_batch, _unnamed),
        "scaled": (lambda c: is_scaled(c.record.job.case), _unnamed),
        "ran_less": (_ran_less, _unnamed),
        "unchecked": (lambda c: not c.record.job.protocol.accuracy, _unnamed),
        "against_eager": (lambda c: bool(c.record.parity and c.record.parity.reference == "eager"), _unnamed),
        "few_processes": (_few_processes, _unnamed),
        "changing_shapes": (_changes_shapes, _unnamed),
        "skipped": (lambda c: c.status is Status.SKIP, _why_skipped),
        "partly_compiled": (_partly_compiled, lambda c: c.record.candidate),
        "other_baseline": (
            lambda c: c.record.job.baseline_dtype not in (None, c.record.job.dtype),
            lambda c: str(c.record.job.baseline_dtype),
        ),
        "environments": (
            lambda c: bool(c.record.job.environments),
            lambda c: c.record.job.environments[0].name,
        ),
        "borrowed": (_borrowed, lambda c: type_of(c.record.job.device)),
    }
)
"""When each sentence of ``caveats.toml`` holds, and what it lists as ``names``."""


def _of_every_run(comparisons: Sequence[Comparison]) -> str | None:
    """The limits of an ordinary run, in one sentence."""
    jobs = [c.record.job for c in comparisons]
    training = {job.protocol.optimizer for job in jobs if job.case.mode is Mode.TRAINING}
    limits = (
        "" if all(map(_changes_shapes, comparisons)) else "shapes are fixed",
        *(STEP.format(_updated(optimizer)) for optimizer in sorted(training)),
        HEAP if any(map(_keeps_heap, comparisons)) else "",
        *_assumptions(comparisons),
    )
    text = "; ".join(limit for limit in limits if limit)
    return f"Limits of every such run: {text}. docs/MEASURING.md has more." if text else None


def _updated(optimizer: str) -> str:
    return "no optimizer step" if optimizer == "none" else UPDATED.format(optimizer)


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


def _remarks(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What suites changed or assumed in their models; each remark once."""
    jobs: dict[str, set[str]] = {}
    for record in (c.record for c in comparisons):
        for remark in record.model.remarks if record.model is not None else ():
            jobs.setdefault(remark, set()).add(record.job.key)
    total = len({c.record.job.key for c in comparisons})
    for remark, keys in jobs.items():
        share = f" (in {len(keys)} of {total} jobs)" if total > 1 else ""
        yield f"{remark[0].upper()}{remark[1:]}{share}."


def _warm_caches(comparisons: Iterable[Comparison]) -> str | None:
    metrics = [c.record.metrics for c in comparisons]
    looked_up = [m for m in metrics if m.get("compile_cache_misses") is not None]
    hits = sum(bool(m.get("compile_cache_hits")) for m in looked_up)
    if not hits:
        return None
    saved = sum(finite(m.get("compile_cache_saved_s")) or 0.0 for m in looked_up)
    longer = (
        f"compiling what the caches held took about {saved:.0f} s"
        if saved >= 1
        else "with cold caches compilation takes longer"
    )
    return f"Compile caches were warm for {hits} of {len(looked_up)} compilations: {longer}."


def _prepared_beside(comparisons: Iterable[Comparison]) -> str | None:
    most = max(int(c.number("prepared_beside") or 0) for c in comparisons)
    if not most:
        return None
    return (
        f"Compilation times with a star (*) were taken while up to {most} other jobs compiled. They "
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
