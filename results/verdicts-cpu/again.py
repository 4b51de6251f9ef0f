"""Ten whole models, drawn at random, in the headline and again on another day: ``python results/verdicts-cpu/again.py``.

*z*: the difference of the two log speedups of inductor over its standard error. The standard error of a speedup is
half the width of its 95 % interval over 1.96; the interval has the variation between processes that is assumed
today. *Memory bandwidth*: what the jobs have measured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from docs.records import AGAIN, records_below  # noqa: E402 - the path comes first
from harness.schema import Record  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.analysis.results import PairedEstimate, Result  # noqa: E402
from runner.analysis.verdicts.decision import Z_95  # noqa: E402


def rows(headline: Iterable[Record], again: Iterable[Record]) -> Iterator[str]:
    """A row for each model that was measured again, and the standard deviation of z about 0."""
    second = _comparisons(again)
    first = _comparisons(
        record for record in headline if (record.job.case.name, record.job.case.mode) in second
    )
    zs, rates = list[float](), list[float]()
    for key, comparison in second.items():
        before, today = first[key].estimate, comparison.estimate
        z = ""
        if before is not None and today is not None:
            zs.append((today.log - before.log) / math.hypot(_error(before), _error(today)))
            z = f"{zs[-1]:.1f}"
            rates.append(_bandwidth(comparison) / _bandwidth(first[key]))
        yield f"| {key[0]} | {_text(first[key])} | {_text(comparison)} | {z} |"
    yield f"memory bandwidth, again over first: {math.prod(rates) ** (1 / len(rates)):.2f}"
    yield f"standard deviation of z about 0: {math.sqrt(sum(z * z for z in zs) / len(zs)):.2f}"


def _comparisons(records: Iterable[Record]) -> dict[tuple[str, object], Result]:
    ours = [record for record in records if record.candidate == "inductor"]
    return {(c.record.job.case.name, c.record.job.case.mode): c for c in summarize(ours).comparisons}


def _error(estimate: PairedEstimate) -> float:
    assert estimate.interval is not None
    low, high = estimate.interval
    return (high - low) / 2 / Z_95


def _bandwidth(comparison: Result) -> float:
    return float(comparison.record.metrics.get("measured_bandwidth_bytes_per_s") or math.nan)


def _text(comparison: Result) -> str:
    if comparison.estimate is None or comparison.verdict is None:
        return comparison.status.value
    return f"{comparison.estimate.factor:.2f}x, {comparison.verdict.value}"


if __name__ == "__main__":
    for first, second in AGAIN:
        print("\n".join(rows(records_below(first), records_below(second))), end="\n\n")
