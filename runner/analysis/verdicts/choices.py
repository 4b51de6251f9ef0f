"""What the processes of a candidate chose, and whether their speedups follow it."""

import math
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType

from harness.schema import AS_FOUND, Record, Scalar
from runner.analysis.digits import estimate_text
from runner.analysis.statistics import mean_of_logs
from runner.analysis.verdicts.compiling import unpaired_ratio
from runner.analysis.verdicts.decision import each_process

CHOICES = MappingProxyType[str, tuple[str, Callable[[Scalar], Scalar]]](
    {
        "autotuned_kernels": ("other kernels, which autotuning chose", lambda kernels: kernels),
        "generated_code": ("other generated code", lambda digest: digest),
        "huge_pages_bytes": ("huge pages or without", bool),
    }
)
"""Metrics that every process has, what differs, and what of them is compared."""
FEWEST = 2  # processes of each kind
CHANCE = 0.01  # of a difference between two kinds of processes


def followed(record: Record) -> str:
    """``1.2x [1.1, 1.3] in 3 processes, 1.0x [0.9, 1.1] in 2 with other generated code``; "" for none."""
    samples = record.samples
    chosen = [record.metrics, *(c.metrics for c in record.compilations if c.start == AS_FOUND)]
    if samples is None or not 2 * FEWEST <= len(samples.rounds_by_process) == len(chosen):
        return ""
    processes = each_process(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
    logs = [process.log for process in processes]
    for name, (what, kind) in CHOICES.items():
        kinds = [kind(metrics.get(name)) for metrics in chosen]
        usual = Counter(kinds).most_common(1)[0][0]
        sides = [
            [log for log, of_log in zip(logs, kinds, strict=True) if (of_log == usual) is is_usual]
            for is_usual in (True, False)
        ]
        if min(map(len, sides)) < FEWEST:
            continue
        apart = unpaired_ratio(*([math.exp(log) for log in side] for side in sides))
        if apart is not None and apart.p_value < CHANCE:
            texts = [estimate_text(mean_of_logs(side)) for side in sides]
            return f"{texts[0]} in {len(sides[0])} processes, {texts[1]} in {len(sides[1])} with {what}"
    return ""
