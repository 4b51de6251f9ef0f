"""The numbers of README and the pages of results against the committed records."""

from pathlib import Path

import pytest

from docs.numbers import lines

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # reads 860 records and 180 of --why


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
