"""What text generation is made of: prefill and decode, each compared on its own."""

from __future__ import annotations

from harness.schema import Record, Samples
from runner.comparison import Generation, Part
from runner.labels import ran_batch
from runner.statistics import PairedEstimate, speedup_by_process


def generation_of(record: Record) -> Generation | None:
    """Prefill and decode of a record's samples; None for a record that is not of generation, or has none.

    Decode is what a step takes after its first new token: new tokens - 1 for each sample of the batch.
    """
    samples, new_tokens = record.samples, record.job.case.new_tokens
    if samples is None or new_tokens is None or len(samples.baseline_prefill_s) != len(samples):
        return None
    batch = ran_batch(record) or 1
    try:
        prefill = speedup_by_process(
            samples.baseline_prefill_s, samples.candidate_prefill_s, samples.rounds_by_process
        )
        decode = _decode(samples)
    except ValueError:  # a prefill as long as its whole step leaves no decode
        return None
    decoded = batch * (new_tokens - 1)
    return Generation(
        prefill=_part(prefill),
        decode=None if decode is None else _part(decode),
        baseline_tokens_per_s=None if decode is None else decoded / decode.baseline_median_s,
        candidate_tokens_per_s=None if decode is None else decoded / decode.candidate_median_s,
    )


def _decode(samples: Samples) -> PairedEstimate | None:
    baseline = [
        whole - part for whole, part in zip(samples.baseline_s, samples.baseline_prefill_s, strict=True)
    ]
    candidate = [
        whole - part for whole, part in zip(samples.candidate_s, samples.candidate_prefill_s, strict=True)
    ]
    if min(baseline + candidate) <= 0:
        return None
    return speedup_by_process(baseline, candidate, samples.rounds_by_process)


def _part(estimate: PairedEstimate) -> Part:
    return Part(
        baseline_ms=estimate.baseline_median_s * 1e3,
        candidate_ms=estimate.candidate_median_s * 1e3,
        speedup=estimate.speedup,
        ci_low=estimate.ci_low,
        ci_high=estimate.ci_high,
    )
