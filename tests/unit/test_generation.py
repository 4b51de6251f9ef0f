"""Prefill and decode, taken apart."""

from dataclasses import replace

import pytest

from harness.schema import Mode, Record
from runner.analysis.derive import compare
from runner.analysis.verdicts.generation import generation_of
from tests.factories import known, make_job, make_record, printed


def generated(*, new_tokens: int | None = 5, whole: float = 1.0, prefill: float = 0.2) -> Record:
    """Eager: prefill of 0.2 s and decode of 0.8 s in every round. The candidate halves the decode alone."""
    record = make_record(make_job(mode=Mode.GENERATE, batch_size=2, new_tokens=new_tokens), rounds=10)
    rounds = len(known(record.samples))
    samples = replace(
        known(record.samples),
        baseline_s=(whole,) * rounds,
        candidate_s=(prefill + (whole - prefill) / 2,) * rounds,
        baseline_prefill_s=(prefill,) * rounds,
        candidate_prefill_s=(prefill,) * rounds,
    )
    return replace(record, samples=samples)


def test_parts_are_compared_on_their_own() -> None:
    found = known(generation_of(generated()))
    assert found.prefill.speedup == pytest.approx(1.0)
    assert known(found.decode).speedup == pytest.approx(2.0)
    assert found.prefill.baseline_ms == pytest.approx(200)
    assert known(found.decode).candidate_ms == pytest.approx(400)
    # a batch of 2, 4 tokens after the first, in 0.8 s
    assert found.baseline_tokens_per_s == pytest.approx(2 * 4 / 0.8)
    assert found.candidate_tokens_per_s == pytest.approx(2 * 4 / 0.4)


def test_one_token_has_no_decode_and_other_modes_no_parts() -> None:
    found = known(generation_of(generated(new_tokens=1, whole=0.2)))
    assert found.decode is None
    assert found.baseline_tokens_per_s is None
    (comparison,) = compare([make_record(make_job())])
    assert comparison.generation is None


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_of_a_terminal_keeps_the_models_names(width: int) -> None:
    text = printed([generated()], width)
    rows = [line for line in text.splitlines() if "inductor" in line and "x [" in line]
    assert rows[-1].startswith("model")
    assert all(len(line) <= width for line in text.splitlines())
