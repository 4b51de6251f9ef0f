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
        if page.endswith(".csv"):
            assert (ROOT / page).read_text(encoding="utf-8").splitlines() == needs, "python -m docs.numbers"
        else:
            text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
            assert [line for line in needs if " ".join(line.split()) not in text] == [], page


@pytest.mark.parametrize("page", ["README.md", "docs/RESULTS.md"])
def test_no_row_with_a_speedup_is_without_records(page: str, needed: dict[str, list[str]]) -> None:
    lines_of_page = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines_of_page if line.startswith("|") and "x [" in line]
    assert [row for row in rows if row not in needed[page]] == []
    assert rows


CONDITIONS = {
    *("95", "8", "2", "4", "2.11", "2.13", "2.15", "1"),
    *("AVX-512", "AVX2", "bfloat16", "float32", "fp64", "204", "H100", "1.00x"),
}
"""What pages say with digits that are no results: settings, versions."""
OF_TABLES = {"33", "40", "39", "0.9", "2.8", "0.991x", "0.978", "1.004", "1.003x", "0.997", "1.010"}
"""Of committed tables that were printed by the program of their day: rerun and versions of headline-cpu."""


@pytest.mark.parametrize("page", ["README.md", "docs/RESULTS.md"])
def test_no_digit_is_without_records(page: str, needed: dict[str, list[str]]) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").replace("\N{EN DASH}", "-").split())
    text = re.sub(r"```.*?```", " ", text)  # commands, and the lines of a run (test_docs.py)
    for line in sorted(needed[page], key=len, reverse=True):
        text = text.replace(" ".join(line.replace("\N{EN DASH}", "-").split()), "")
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", " ", text)  # addresses, names
    names = {record.job.case.name for record in records_below(SMALL)}
    words = {word.strip(".,;:()*[]|") for word in text.split() if any(map(str.isdigit, word))}
    assert words - names - CONDITIONS - OF_TABLES == set()
