"""What the averages of a run do not cover, as sentences with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.schema import Job, Mode, Status
from runner.comparison import Comparison
from runner.labels import ran_batch


def caveats(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The sentences that hold for this run; none for a run without records."""
    jobs = list({c.record.job.key: c.record.job for c in comparisons}.values())
    if not jobs:
        return ()
    sentences = (
        _cut_batches(jobs),
        _scaled_models(jobs),
        _skipped(comparisons),
        _halved(comparisons),
        _unchecked(jobs),
        _partly_compiled(comparisons),
        _warm_caches(comparisons),
        "A training step is forward, loss and backward; no optimizer steps."
        if any(job.case.mode is Mode.TRAINING for job in jobs)
        else None,
        _other_baseline(jobs),
        _environments(jobs),
        _shapes(jobs),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _cut_batches(jobs: Sequence[Job]) -> str | None:
    cut = sum((job.case.batch_size or 0) < (job.case.published_batch_size or 0) for job in jobs)
    if not cut:
        return None
    return f"The batch is smaller than the published one for {cut} of {len(jobs)} jobs (column batch)."


def _scaled_models(jobs: Sequence[Job]) -> str | None:
    scaled = sum(job.case.scale != "full" for job in jobs)
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
    return f"Not run, and in no count ({len(why)} models): {'; '.join(why)}."


def _shapes(jobs: Sequence[Job]) -> str:
    dynamic = sum(job.options.dynamic_shapes or job.options.dynamic_batch for job in jobs)
    if not dynamic:
        return "Shapes are fixed: nothing here speaks about dynamic shapes."
    return f"In {dynamic} of {len(jobs)} jobs a step runs several batches; compilers were asked for any size."


def _other_baseline(jobs: Sequence[Job]) -> str | None:
    others = dict.fromkeys(job.baseline_dtype for job in jobs if job.baseline_dtype not in (None, job.dtype))
    if not others:
        return None
    names = ", ".join(map(str, others))
    return f"Every precision is timed against eager {names}; parity is checked with eager in its own."


def _environments(jobs: Sequence[Job]) -> str | None:
    references = dict.fromkeys(job.environments[0].name for job in jobs if job.environments)
    if not references:
        return None
    return (
        "compiler@environment is held against eager of its own environment, and eager@environment against "
        f"eager of {', '.join(references)}; the tables of environments hold all against the latter."
    )


def _halved(comparisons: Sequence[Comparison]) -> str | None:
    halved = {c.record.job.key for c in comparisons if ran_batch(c.record) != c.record.job.case.batch_size}
    if not halved:
        return None
    return f"For want of memory the batch was halved, for eager and compiled alike, in {len(halved)} jobs."


def _unchecked(jobs: Sequence[Job]) -> str | None:
    if all(job.protocol.accuracy for job in jobs):
        return None
    return "Parity was not checked (--performance): a candidate may be fast and wrong."


def _partly_compiled(comparisons: Iterable[Comparison]) -> str | None:
    partly = dict.fromkeys(
        c.record.candidate
        for c in comparisons
        if c.record.metrics.get("compiled_region") == "forward" and c.record.job.case.mode is Mode.TRAINING
    )
    if not partly:
        return None
    return f"Only the forward is compiled, the loss stays eager, for: {', '.join(partly)}."


def _warm_caches(comparisons: Iterable[Comparison]) -> str | None:
    looked_up = [
        c.record.metrics for c in comparisons if c.record.metrics.get("compile_cache_misses") is not None
    ]
    hits = sum(bool(metrics.get("compile_cache_hits")) for metrics in looked_up)
    if not hits:
        return None
    saved = [s for m in looked_up if isinstance(s := m.get("compile_cache_saved_s"), (int, float))]
    longer = (
        f"what was in them took about {sum(saved):.0f} s to compile"
        if sum(saved) >= 1
        else "cold ones take longer"
    )
    return f"Compile caches were warm for {hits} of {len(looked_up)} compilations: {longer}."
