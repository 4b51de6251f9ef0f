"""The two parts of text generation, prefill and decode, compared separately."""

from __future__ import annotations

import numpy as np

from harness.schema import Record, Samples
from runner.analysis.comparison import Generation
from runner.analysis.estimate import PairedEstimate
from runner.analysis.verdicts.decision import Between, judged
from runner.analysis.verdicts.family import assumed_of
from runner.labels import ran_batch


def generation_of(record: Record) -> Generation | None:
    """Prefill and decode of a record's samples; None for other cases and for records without samples.

    Decode is the part of a step after its first new token: it gives new tokens - 1 for each sequence.
    """
    samples, new_tokens = record.samples, record.job.case.new_tokens
    if samples is None or new_tokens is None or len(samples.baseline_prefill_s) != len(samples):
        return None
    batch = ran_batch(record) or 1
    try:
        between = Between(assumed_sd=assumed_of(record))
        prefill = judged(
            samples.baseline_prefill_s, samples.candidate_prefill_s, samples.rounds_by_process, between
        )
        decode = _decode(samples, between) if new_tokens > 1 else None
    except ValueError:  # a prefill as long as its whole step leaves no decode
        return None
    decoded = batch * (new_tokens - 1)
    return Generation(
        prefill=prefill,
        decode=decode,
        baseline_tokens_per_s=None if decode is None else decoded / decode.baseline_median_s,
        candidate_tokens_per_s=None if decode is None else decoded / decode.candidate_median_s,
    )


def _decode(samples: Samples, between: Between) -> PairedEstimate | None:
    baseline = np.subtract(samples.baseline_s, samples.baseline_prefill_s)
    candidate = np.subtract(samples.candidate_s, samples.candidate_prefill_s)
    if min(baseline.min(), candidate.min()) <= 0:
        return None
    return judged(baseline, candidate, samples.rounds_by_process, between)
