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
    wholes = (samples.baseline_s, samples.candidate_s)
    prefills = (samples.baseline_prefill_s, samples.candidate_prefill_s)
    if any(len(column) != len(samples) for column in (*wholes, *prefills)):
        return None
    by_process, between = samples.rounds_by_process, Between(assumed_sd=assumed_of(record))
    rests = (np.subtract(whole, first) for whole, first in zip(wholes, prefills, strict=True))
    baseline_rest, candidate_rest = rests
    prefill = judged_or_none(*prefills, by_process, between)
    decode = judged_or_none(baseline_rest, candidate_rest, by_process, between) if new_tokens > 1 else None
    if prefill is None:
        return None
    decoded = (ran_batch(record) or 1) * (new_tokens - 1)
    return Generation(
        prefill=prefill,
        decode=decode,
        baseline_tokens_per_s=None if decode is None else decoded / decode.baseline_median_s,
        candidate_tokens_per_s=None if decode is None else decoded / decode.candidate_median_s,
    )
