"""The numbers of README and the pages of results against the committed records."""

import re
from pathlib import Path

import pytest

from docs.numbers import lines
from docs.records import SMALL, records_below

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # reads 900 records and 306 of --why


@pytest.fixture(scope="module")
def needed() -> dict[str, list[str]]:
    return lines()


def test_the_pages_have_what_the_records_say(needed: dict[str, list[str]]) -> None:
    for page, needs in needed.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert [line for line in needs if " ".join(line.split()) not in text] == [], page


@pytest.mark.parametrize(
    "page", ["README.md", "docs/RESULTS.md", "docs/SMALL_SCALE.md", "results/headline-whole-cpu/README.md"]
)
def test_no_row_with_a_speedup_is_without_records(page: str, needed: dict[str, list[str]]) -> None:
    lines_of_page = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines_of_page if line.startswith("|") and "x [" in line]
    assert [row for row in rows if row not in needed[page]] == []
    assert rows


CONDITIONS = {
    *("95", "10-90", "20", "1", "2", "8", "27", "2026", "2,048", "2.13"),
    *("12", "30", "4", "7", "120"),  # minutes on two days; counts of runs of which no record is kept
    *("AVX-512", "bfloat16", "whole-bfloat16", "float32", "fp64", "204", "3.10-3.13", "1e-3", "1.00x"),
}
"""What pages say with digits that are no results: settings, versions, days."""


@pytest.mark.parametrize("page", ["README.md", "docs/RESULTS.md"])
def test_no_digit_is_without_records(page: str, needed: dict[str, list[str]]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").replace("\N{EN DASH}", "-").split())
    for line in sorted(needed[page], key=len, reverse=True):
        text = text.replace(" ".join(line.replace("\N{EN DASH}", "-").split()), "")
    text = re.sub(r"\]\([^)]*\)|```.*?```|`[^`]*`", " ", text)  # addresses and commands
    names = {record.job.case.name for record in records_below(SMALL)}
    words = {word.strip(".,;:()*[]|") for word in text.split() if any(map(str.isdigit, word))}
    assert words - names - CONDITIONS == set()
