"""``--shapes``: how a stream of sizes is written, and what its calls are."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.shapes.sizes import calls_of, sizes_run, spec


def test_a_list_is_these_calls_again_from_the_first_up_to_the_count() -> None:
    assert calls_of("sequence=64,128,96", 1) == (64, 128, 96)
    assert calls_of("sequence=64,128:5", 1) == (64, 128, 64, 128, 64)


def test_a_spread_is_drawn_from_the_seed() -> None:
    first, again, other = (calls_of("batch=100:+-20%:50", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 50
    assert 80 <= min(first) < 90
    assert 110 < max(first) <= 120


def test_a_file_has_a_size_a_line(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text("7\n9\n")
    assert spec(f"batch={file}") == "batch=7,9"
    assert len(calls_of(spec("batch=" + ",".join(["1000"] * 300)), 0)) == 300  # longer than a file's name
    file.write_text("\n")
    with pytest.raises(ValueError, match="is empty; write one size a line"):
        spec(f"batch={file}")


def test_padded_sizes_are_powers_of_two_or_the_stated_ones() -> None:
    assert sizes_run("batch=3,8,9,11", 0, "padded") == (4, 8, 11, 11)
    assert sizes_run("batch=3,8,9/6,12", 0, "padded") == (6, 12, 12)
    assert sizes_run("batch=3,8,9/6,12", 0, "static") == (3, 8, 9)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("64,128", "names no axis"),
        ("threads=1,2", "there is no axis called 'threads'"),
        ("batch=", "has no sizes"),
        ("batch=0,4", "too small"),
        ("batch=x", "there is no file 'x'; write for example"),
        ("batch=4,x", "not a whole number"),
        ("batch=4,8:5000", "more than 1000"),
        ("batch=4,8/6", "no size to pad to is as large as 8"),
        ("batch=100:+-20%:2/119", "no size to pad to is as large as 120"),  # whatever the seed draws
    ],
)
def test_a_bad_stream_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        spec(text)
