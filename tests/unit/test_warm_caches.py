"""What warm compile caches saved is said; where torch does not say how much, that is not made up."""

from dataclasses import replace

import pytest

from harness.schema import Scalar
from runner.analysis.derive import summarize
from tests.factories import make_job, make_record


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ([{"hits": 2, "misses": 0, "saved_s": 12.2}, {"hits": 1, "misses": 0, "saved_s": 3.1}],
         "Compile caches were warm for 2 of 2 compilations: compiling what the caches held took about 15 s."),
        ([{"hits": 2, "misses": 0}, {"hits": 0, "misses": 1}],
         "Compile caches were warm for 1 of 2 compilations: with cold caches compilation takes longer."),
        ([{"hits": 0, "misses": 1}], None),
    ],
)  # fmt: skip
def test_what_caches_saved(metrics: list[dict[str, Scalar]], sentence: str | None) -> None:
    records = []
    for number, found in enumerate(metrics):
        record = make_record(make_job(f"model_{number}"), "inductor")
        named = {f"compile_cache_{name}": value for name, value in found.items()}
        records.append(replace(record, metrics={**record.metrics, **named}))
    caveats = [text for text in summarize(records).caveats if "caches" in text]
    assert caveats == ([sentence] if sentence else [])
