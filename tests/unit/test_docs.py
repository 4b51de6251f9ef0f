"""The pages against the program: flags, the fields of the record, links, the quoted run, and their length."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import pages
from harness import schema
from harness.codec import recorded_name
from runner.analysis import results
from torchduet import Result, compare

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MOST_WORDS, MOST_PAGES = 24386, 28  # 21,500 were meant; the tables of NUMERICS and generated lists came
MOST_OF_README, MOST_OF_RESULTS = 450, 600
CHANGES = ROOT / "CHANGELOG.md"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHANGES])
LINKED = [*PAGES, ROOT / "examples" / "README.md", *sorted((ROOT / "results").glob("*/README.md"))]


@pytest.mark.parametrize("name", pages.pages())
def test_pages_and_lists_are_what_the_program_declares(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == pages.pages()[name](), "run: python -m docs.pages"


def words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def test_the_pages_are_few_and_short() -> None:
    """All words, numbers, commands and bars of tables count, as ``wc -w`` counts them."""
    counted = [path for path in PAGES if path != CHANGES]
    assert len(counted) <= MOST_PAGES
    assert sum(map(words, counted)) <= MOST_WORDS
    assert words(ROOT / "README.md") <= MOST_OF_README
    assert [path for path in ROOT.glob("results/*/README.md") if words(path) > MOST_OF_RESULTS] == []
    assert {path.stem for path in PAGES} <= set(re.findall(r"\w+", (DOCS / "conf.py").read_text()))


def test_a_field_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Odd has fields without a meaning: .*last"):
        pages._fields(Odd)


@dataclasses.dataclass
class Odd:
    first: int  # a meaning
    last: int


def documented(name: str) -> set[str]:
    """The names in the list, or in the first cells of the table, below the heading ``name``."""
    text = (DOCS / "FORMAT.md").read_text(encoding="utf-8")
    part = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^(?:- (`.*?): |\| (`.*?) \|)", part, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(\w+)`", "".join(cell))}


def test_the_page_of_the_api_has_every_argument_and_attribute() -> None:
    text = (DOCS / "API.md").read_text(encoding="utf-8")
    arguments = [name for name in inspect.signature(compare).parameters if name != "others"]
    assert (
        re.findall(r"^- `(\w+)", text.split("\n## compare\n")[1].split("\n## ")[0], re.MULTILINE) == arguments
    )
    own = [name for name in dir(Result) if not name.startswith("_")]
    assert [name for name in own if f"`{name}" not in text] == []
    cells = re.findall(r"^- (`.+?): ", text.split("\n## Comparison\n")[1].split("\n## ")[0], re.MULTILINE)
    shown = re.findall(r"`(\w+)", " ".join(cells))
    assert [name for name in shown if not hasattr(results.Result, name)] == []


def test_every_status_and_phase_is_explained() -> None:
    assert documented("Status") == {status.value for status in schema.Status}
    text = (DOCS / "FORMAT.md").read_text(encoding="utf-8").split("\n## Phases\n", 1)[1].split("\n## ", 1)[0]
    assert tuple(re.findall(r"^- `([^`]+)`:", text, re.MULTILINE)) == schema.FAILURE_PHASES


def written_phases(tree: ast.Module) -> Iterator[str]:
    """Words that become a failure's phase: of activities, of failures, and the names of a worker's calls."""
    for node in ast.walk(tree):
        words: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("Activity", "Failure"):
                words = [keyword.value for keyword in node.keywords if keyword.arg == "phase"]
            words += node.args[:1] if name in ("_say", "_call", "_checked", "attempting") else []
        elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "calls":
            words = [key for key in getattr(node.value, "keys", ()) if key is not None]
        yield from (str(w.value).replace("_", " ") for w in words if isinstance(w, ast.Constant))


@pytest.mark.slow
def test_every_phase_that_is_written_is_one_of_the_documented() -> None:
    files = [path for folder in ("harness", "runner", "torchduet") for path in (ROOT / folder).rglob("*.py")]
    written = {word for path in files for word in written_phases(ast.parse(path.read_text(encoding="utf-8")))}
    assert {"plan", "start", "import", "open", "build", "eager", "prepare", "warm up"} <= written
    assert written <= set(schema.FAILURE_PHASES)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_estimator_is_named_as_it_is(path: Path) -> None:
    text = " ".join(path.read_text(encoding="utf-8").split())
    assert not re.search(r"(?<!pseudo-)(?<!pseudo)\bmedian of (the |all )?(paired |pairwise )?ratios", text)


def test_every_version_of_the_format_is_explained() -> None:
    kinds = [kind for kind in vars(schema).values() if dataclasses.is_dataclass(kind)]
    assert documented("Versions") <= {recorded_name(f) for kind in kinds for f in dataclasses.fields(kind)}
    text = (DOCS / "FORMAT.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \| 20", text, re.MULTILINE) == [
        str(version) for version in range(1, schema.SCHEMA_VERSION + 1)
    ]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_links_lead_to_a_file_and_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8"))
    here = [
        (path.parent / target if target else path, anchor) for target, anchor in links if "://" not in target
    ]
    assert [str(file) for file, _ in here if not file.exists()] == []
    to_pages = [(file, anchor) for file, anchor in here if anchor and file.suffix == ".md"]
    assert [f"{file.name}#{anchor}" for file, anchor in to_pages if anchor not in anchors(file)] == []


def test_the_table_of_study_a_comes_from_a_committed_run() -> None:
    text = (DOCS / "STUDIES.md").read_text(encoding="utf-8")
    part = text.split("\n## A: ", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    reports = (ROOT / "results").glob("study-a-*/report.md")
    report = [line for path in reports for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert [row for row in rows if row not in report] == []
