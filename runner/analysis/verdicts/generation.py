"""The two parts of text generation, prefill and decode, compared separately."""

from __future__ import annotations

import numpy as np

from harness.schema import Record
from runner.analysis.comparison import Generation
from runner.analysis.verdicts.decision import Between, judged_or_none
from runner.analysis.verdicts.family import assumed_of
from runner.labels import ran_batch


def generation_of(record: Record) -> Generation | None:
    """Prefill and decode of a record's samples; None for other cases and for records without samples.

    Decode is the part of a step after its first new token: it gives new tokens - 1 for each sequence. A
    prefill as long as its whole step leaves no decode.
    """
    samples, new_tokens = record.samples, record.job.case.new_tokens
    if samples is None or new_tokens is None:
        return None
    baseline, candidate = samples.baseline_prefill_s, samples.candidate_prefill_s
    columns = (samples.baseline_s, samples.candidate_s, baseline, candidate)
    if any(len(column) != len(samples) for column in columns):
        return None
    by_process, between = samples.rounds_by_process, Between(assumed_sd=assumed_of(record))
    prefill = judged_or_none(baseline, candidate, by_process, between)
    if prefill is None:
        return None
    rests = np.subtract(samples.baseline_s, baseline), np.subtract(samples.candidate_s, candidate)
    decode = judged_or_none(*rests, by_process, between) if new_tokens > 1 else None
    decoded = (ran_batch(record) or 1) * (new_tokens - 1)
    return Generation(
        prefill=prefill,
        decode=decode,
        baseline_tokens_per_s=None if decode is None else decoded / decode.baseline_median_s,
        candidate_tokens_per_s=None if decode is None else decoded / decode.candidate_median_s,
    )
