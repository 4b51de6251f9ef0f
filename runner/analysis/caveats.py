"""What the averages of a run do not cover, as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from harness.schema import Job, Mode, Record, Scalar, Status
from runner.analysis.comparison import Comparison
from runner.analysis.digits import share_text
from runner.analysis.verdicts.between import LEAST_ACROSS, SOURCE
from runner.labels import is_scaled, ran_batch

NEWEST: Mapping[str, str] = MappingProxyType({"torch": "2.15.0", "torchvision": "0.29.2"})
"""The newest versions that this program was tested with, by ``make versions``."""


def caveats(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The sentences that hold for this run. A run without records has none."""
    jobs = list({c.record.job.key: c.record.job for c in comparisons}.values())
    if not jobs:
        return ()
    sentences = (
        _cut_batches(jobs),
        _scaled_models(jobs),
        _skipped(comparisons),
        _halved(comparisons),
        _unchecked(jobs),
        _without_fp64(comparisons),
        _partly_compiled(comparisons),
        _warm_caches(comparisons),
        _prepared_beside(comparisons),
        _opposite_ways(comparisons),
        _assumed(comparisons),
        "A training step is forward, loss and backward. It includes no optimizer step."
        if any(job.case.mode is Mode.TRAINING for job in jobs)
        else None,
        _other_baseline(jobs),
        _environments(jobs),
        _few_processes(comparisons),
        _shapes(jobs),
        untested(c.record.environment for c in comparisons),
        *_remarks(comparisons),
    )
    return tuple(sentence for sentence in sentences if sentence)


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
        "The times are medians over all rounds, so they include changes of the machine's speed. The speedup "
        "is computed from the ratio of each round, so these changes cancel. Trust the speedup."
    )


def _assumed(comparisons: Iterable[Comparison]) -> str | None:
    """The variation between processes that one process cannot show, named as assumed."""
    found: dict[float, list[str]] = {}
    for one in comparisons:
        if one.estimate is not None and one.estimate.assumed_sd is not None:
            found.setdefault(one.estimate.assumed_sd, []).append(one.compiler)
    if not found:
        return None
    each = "; ".join(
        f"{share_text(sd)} for {', '.join(dict.fromkeys(names))}" for sd, names in sorted(found.items())
    )
    return (
        "Intervals and verdicts of one process include an assumed standard deviation between processes "
        f"({each}; {SOURCE}). --processes=N replaces the assumption by a measurement."
    )


def _cut_batches(jobs: Sequence[Job]) -> str | None:
    cut = sum((job.case.batch_size or 0) < (job.case.published_batch_size or 0) for job in jobs)
    if not cut:
        return None
    return f"The batch is smaller than the published one for {cut} of {len(jobs)} jobs (column batch)."


def _scaled_models(jobs: Sequence[Job]) -> str | None:
    scaled = sum(is_scaled(job.case) for job in jobs)
    if not scaled:
        return None
    return (
        f"The model is smaller than the published one for {scaled} of {len(jobs)} jobs (named in brackets)."
    )


def _skipped(comparisons: Sequence[Comparison]) -> str | None:
    skipped = [c.record for c in comparisons if c.record.status is Status.SKIP]
    if not skipped:
        return None
    why = dict.fromkeys(f"{r.job.case.name}: {r.failure.message}" for r in skipped if r.failure is not None)
    return f"Not run, and not counted ({len(why)} models): {'; '.join(why)}."


def _shapes(jobs: Sequence[Job]) -> str:
    dynamic = sum(job.options.dynamic_shapes or job.options.dynamic_batch for job in jobs)
    if not dynamic:
        return "Shapes are fixed: these results do not cover dynamic shapes."
    return (
        f"In {dynamic} of {len(jobs)} jobs a step runs batches of several sizes, and the compilers were "
        "asked for dynamic shapes."
    )


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


def _other_baseline(jobs: Sequence[Job]) -> str | None:
    others = dict.fromkeys(job.baseline_dtype for job in jobs if job.baseline_dtype not in (None, job.dtype))
    if not others:
        return None
    names = ", ".join(map(str, others))
    return (
        f"Every precision is timed against eager {names}. Parity is checked against eager in the candidate's "
        "own precision."
    )


def _environments(jobs: Sequence[Job]) -> str | None:
    references = dict.fromkeys(job.environments[0].name for job in jobs if job.environments)
    if not references:
        return None
    return (
        "compiler@environment is compared with eager of its own environment, and eager@environment with "
        f"eager of {', '.join(references)}. The tables of environments compare all with eager of "
        f"{', '.join(references)}."
    )


def _few_processes(comparisons: Sequence[Comparison]) -> str | None:
    found = [c for c in comparisons if c.record.job.environments and c.estimate is not None]
    if not found or min(c.processes or 1 for c in found) >= LEAST_ACROSS:
        return None
    return (
        "Environments run in processes of their own, and the speed of processes differs. Below "
        f"{LEAST_ACROSS} processes a side, verdicts across environments are withheld: use "
        f"--processes={LEAST_ACROSS}."
    )


def _halved(comparisons: Sequence[Comparison]) -> str | None:
    halved = {c.record.job.key for c in comparisons if _ran_less(c.record)}
    if not halved:
        return None
    return (
        f"The batch did not fit in memory in {len(halved)} jobs. It was halved there, for eager and for the "
        "candidates."
    )


def _ran_less(record: Record) -> bool:
    ran, asked = ran_batch(record), record.job.case.batch_size
    return ran is not None and asked is not None and ran < asked


def _unchecked(jobs: Sequence[Job]) -> str | None:
    if all(job.protocol.accuracy for job in jobs):
        return None
    return "Parity was not checked (--performance): a fast candidate may compute wrong results."


def _without_fp64(comparisons: Iterable[Comparison]) -> str | None:
    checked = {c.record.job.key: c.record.parity for c in comparisons if c.record.parity is not None}
    without = sum(parity.reference == "eager" for parity in checked.values())
    if not without:
        return None
    return (
        f"In {without} of {len(checked)} jobs there is no run in fp64 to compare with (an operation does not "
        "support it, it is another computation, or memory was short). Parity is judged against eager there."
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
