"""The pages of docs/ against the program: flags, the fields of the record, links."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness import schema
from runner.flags_page import PAGE, page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])


def test_the_page_of_flags_is_what_the_parser_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m runner.flags_page"


def kinds() -> list[type]:
    found = [kind for kind in vars(schema).values() if dataclasses.is_dataclass(kind)]
    return [kind for kind in found if isinstance(kind, type)]


def documented(name: str) -> set[str]:
    """The names in the first cells of the table under the heading ``name``."""
    text = (DOCS / "FORMAT.md").read_text(encoding="utf-8")
    part = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: str(kind.__name__))
def test_every_field_of_the_record_is_explained(kind: type) -> None:
    assert documented(kind.__name__) == {f.name for f in dataclasses.fields(kind)}


def test_every_status_is_explained() -> None:
    assert documented("Status") == {status.value for status in schema.Status}


def test_every_version_of_the_format_is_explained() -> None:
    assert documented("Versions") <= {f.name for kind in kinds() for f in dataclasses.fields(kind)}
    text = (DOCS / "FORMAT.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \| 20", text, re.MULTILINE) == [
        str(version) for version in range(1, schema.SCHEMA_VERSION + 1)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("study", ["a", "b", *(["c"] if (ROOT / "results" / "study-c-cpu").exists() else [])])
def test_tables_of_the_studies_come_from_committed_runs(study: str) -> None:
    text = (DOCS / "STUDIES.md").read_text(encoding="utf-8")
    part = text.split(f"\n## {study.upper()}: ", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    reports = (ROOT / "results").glob(f"study-{study}-*/report.md")
    report = [line for path in reports for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert [row for row in rows if row not in report] == []
