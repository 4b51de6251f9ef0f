"""The number and the date of a release agree in every place that has them (docs/RELEASING.md)."""

import re
from pathlib import Path

from harness.loading.toml_file import read_toml

ROOT = Path(__file__).parents[2]
VERSION = read_toml(ROOT / "pyproject.toml")["project"]["version"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_changelog_has_this_version_on_top_with_its_date() -> None:
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    numbered = [re.fullmatch(r"(\d+\.\d+\.\d+), (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(numbered)
    assert numbered[0] is not None
    assert numbered[0][1] == VERSION


def test_the_citation_has_the_version_and_the_date() -> None:
    citation = dict(re.findall(r"^(version|date-released): (\S+)$", text("CITATION.cff"), re.MULTILINE))
    dated = f"## {citation['version']}, {citation['date-released']}"
    assert citation["version"] == VERSION
    assert dated in text("CHANGELOG.md").splitlines()


def test_the_example_of_the_action_uses_this_version() -> None:
    assert re.findall(r"torchduet@v(\S+)", text("docs/CI.md")) == [VERSION]
