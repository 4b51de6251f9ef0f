"""README's and RESULTS's numbers against the committed records."""

from pathlib import Path

import pytest

from docs.numbers import lines

ROOT = Path(__file__).parents[2]
OF_OURS = ("| `", "| timm_models,", "| huggingface,", "| tiny_gpt,")  # how a row of an average begins
pytestmark = pytest.mark.slow  # reads 820 records and 100 of --why


@pytest.fixture(scope="module")
def needed() -> dict[str, list[str]]:
    return lines()


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8").replace(" (a)", "")


@pytest.mark.parametrize("page", ["README.md", "docs/RESULTS.md"])
def test_a_page_has_what_the_records_say(page: str, needed: dict[str, list[str]]) -> None:
    text = " ".join(text_of(page).split())
    assert [line for line in needed[page] if " ".join(line.split()) not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/RESULTS.md"])
def test_no_row_of_averages_or_causes_is_without_records(page: str, needed: dict[str, list[str]]) -> None:
    first, *_ = text_of(page).split("\n## What did not pass")
    rows = [line for line in first.splitlines() if line.startswith(OF_OURS) or ", slower |" in line]
    assert [row for row in rows if row not in needed[page] and "float32 | pass" not in row] == []
    assert rows
