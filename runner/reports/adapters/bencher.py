"""bencher.json: the results that passed, in Bencher's metric format (BMF), with the intervals of speedups.

https://bencher.dev/docs/reference/bencher-metric-format; ``latency`` is in ns, as Bencher's own measure of
this name. Written only if ``--format=bencher`` asks for it.
"""

import json
from collections.abc import Mapping

from harness.declared import finite
from runner.analysis.results import Result, Summary
from runner.names import plain

FORMATS, ON_REQUEST = ("bencher",), True
WORDS = ("value", "lower_value", "upper_value")


def render(summary: Summary) -> Mapping[str, bytes]:
    timed = (c for c in summary.comparisons if c.passed and c.estimate is not None)
    benchmarks = {plain(f"{c.record.job.key} {c.compiler}"): measures(c) for c in timed}
    return {"bencher.json": (json.dumps(benchmarks, indent=1, allow_nan=False) + "\n").encode()}


def measures(c: Result) -> dict[str, dict[str, float]]:
    """A value of each; a speedup also has the ends of its 95 % interval."""
    known = c.estimate
    assert known is not None
    numbers = {
        "speedup": (known.factor, known.low, known.high),
        "latency": (known.candidate_ms * 1e6,),
        "compilation-latency": (c.compile_s,),
    }
    parts = {name: zip(WORDS, map(finite, values), strict=False) for name, values in numbers.items()}
    return {
        m: kept for m, own in parts.items() if "value" in (kept := {w: v for w, v in own if v is not None})
    }
