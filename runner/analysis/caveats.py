"""What the averages of a run do not cover, as sentences with their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from harness.declared import finite
from harness.devices import of, type_of
from harness.loading.toml_file import read_toml
from harness.schema import Job, Mode, Record, Scalar, Status
from runner.analysis.comparison import Comparison
from runner.analysis.digits import share_text
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.labels import counted, is_scaled, ran_batch

NEWEST: Mapping[str, str] = MappingProxyType({"torch": "2.15.0", "torchvision": "0.29.2"})
"""The newest versions that this program was tested with, by ``make versions``."""

WORDS = Path(__file__).with_suffix(".toml")
HEAP = "malloc keeps its heap, so a compiler gains nothing by fewer page faults (--allocator=system has them)"
STEP = "a training step is forward, loss and backward (not a step of your own), with {}"
UPDATES = {"none": "no optimizer step"}
UPDATED = "a step of {} (each sample begins with the same weights)"


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
    cases = list(filter(HOLDS[name], comparisons))
    count, total = (len({c.record.job.key for c in some}) for some in (cases, comparisons))
    texts = dict.fromkeys(filter(None, map(NAMES[name], cases))) if name in NAMES else ()
    names = ("; " if name == "skipped" else ", ").join(texts)
    return sentence.format(count=count, total=total, names=names, least=LEAST_ACROSS) if cases else ""


def _changes_shapes(job: Job) -> bool:
    return job.options.dynamic_shapes or job.options.dynamic_batch


HOLDS: Mapping[str, Callable[[Comparison], bool]] = MappingProxyType(
    {
        "cut_batch": lambda c: (
            (c.record.job.case.batch_size or 0) < (c.record.job.case.published_batch_size or 0)
        ),
        "scaled": lambda c: is_scaled(c.record.job.case),
        "ran_less": lambda c: (ran_batch(c.record) or math.inf) < (c.record.job.case.batch_size or 0),
        "unchecked": lambda c: not c.record.job.protocol.accuracy,
        "against_eager": lambda c: bool(c.record.parity and c.record.parity.reference == "eager"),
        "few_processes": lambda c: (
            bool(c.record.job.environments) and c.estimate is not None and c.estimate.processes < LEAST_ACROSS
        ),
        "changing_shapes": lambda c: _changes_shapes(c.record.job),
        "skipped": lambda c: c.status is Status.SKIP,
        "partly_compiled": lambda c: (
            c.value("compiled_region") == "forward" and c.record.job.case.mode is Mode.TRAINING
        ),
        "other_baseline": lambda c: c.record.job.baseline_dtype not in (None, c.record.job.dtype),
        "environments": lambda c: bool(c.record.job.environments),
        "borrowed": lambda c: c.borrowed,
    }
)
"""When each sentence of ``caveats.toml`` holds."""

NAMES: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "skipped": lambda c: (
            f"{c.record.job.case.name}: {c.record.failure.message}" if c.record.failure else ""
        ),
        "partly_compiled": lambda c: c.record.candidate,
        "other_baseline": lambda c: str(c.record.job.baseline_dtype),
        "environments": lambda c: c.record.job.environments[0].name,
        "borrowed": lambda c: type_of(c.record.job.device),
    }
)
"""What a sentence lists as ``names``."""


def _of_every_run(comparisons: Sequence[Comparison]) -> str | None:
    """The limits of an ordinary run, in one sentence."""
    jobs = [c.record.job for c in comparisons]
    training = {job.protocol.optimizer.rpartition("/")[2] for job in jobs if job.case.mode is Mode.TRAINING}
    limits = (
        "shapes are fixed" if any(not _changes_shapes(job) and not job.extras.shapes for job in jobs) else "",
        *(STEP.format(UPDATES.get(optimizer, UPDATED).format(optimizer)) for optimizer in sorted(training)),
        HEAP if any(c.n > 0 and _keeps_heap(c.record) for c in comparisons) else "",
        *_assumptions(comparisons),
    )
    text = "; ".join(limit for limit in limits if limit)
    return f"Limits of every such run: {text}. docs/MEASURING.md has more." if text else None


def _keeps_heap(record: Record) -> bool:
    """Whether malloc kept its heap, as in a worker. The caller of ``compare()`` has malloc as it is."""
    asked, had = record.job.extras.allocator, record.environment.get("allocator", "default")
    return asked == had == "default" and not of(record.job.device).accelerated


def _assumptions(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """What intervals of one process assume: ``training: aot_eager 0.4 %, inductor 0.6 % or 2.3 %``."""
    sources: dict[str, dict[str, dict[str, set[float]]]] = {}
    for c in comparisons:
        if c.estimate is not None and c.estimate.assumed_sd is not None:
            modes = sources.setdefault(age_text(c.record.calibrated, c.record.started), {})
            compilers = modes.setdefault(c.record.job.case.mode.value, {})
            compilers.setdefault(c.compiler, set()).add(c.estimate.assumed_sd)
    for calibrated, modes in sources.items():
        values = "; ".join(f"{mode}: {_taus_text(compilers)}" for mode, compilers in modes.items())
        kind, measured = (
            (f"this machine's variation between processes, calibrated on {calibrated},", "--processes=N")
            if calibrated
            else ("an assumed variation between processes", "--processes=N")
        )
        yield f"intervals of one process include {kind} ({values}; {measured} measures it)"


def _taus_text(compilers: Mapping[str, set[float]]) -> str:
    return ", ".join(f"{name} {' or '.join(map(share_text, sorted(sds)))}" for name, sds in compilers.items())


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
    looked_up = [m for m in metrics if m.get("compile_cache_hits") or m.get("compile_cache_misses")]
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
    newest = {name: max(_release(facts.get(name)) for facts in all_facts) for name in NEWEST}
    packages = [name for name, version in newest.items() if version > Version(NEWEST[name])]
    if not packages:
        return None
    newer, tested = (" and ".join(f"{name} {each[name]}" for name in packages) for each in (newest, NEWEST))
    return f"{newer}: newer than every version that torchduet was tested with (up to {tested})."


def _release(version: Scalar) -> Version:
    """The release, without suffixes of builds and pre-releases: a nightly counts as its release."""
    try:
        return Version(Version(str(version)).base_version)
    except InvalidVersion:
        return Version("0")
