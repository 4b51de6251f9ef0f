"""The report of a study: blocks of Markdown, the claims of its source beside the run, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.analysis.digits import significant
from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from runner.store.run_folder import write_whole
from studies.options import tables

HOLDS, FAILS, OPEN = "yes", "NOT in this run", "cannot tell"
NOT_SHOWN = "not shown"
"""The run was too short for the claim: neither shown nor refuted. The result says what it would take."""
NOT_JUDGED = "not judged"
Judged = tuple[str, str]
"""What the run shows, and whether the claim holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """``blocks``: paragraphs, heads and tables; empty ones are left out. ``files``: beside the report."""

    name: str = "report.md"
    blocks: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    failures: Sequence[str] = ()

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, self.blocks)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """``title``: what the claim is about, if a report has the same claim several times."""

    title: str = ""
    expected: str
    seen: str
    holds: str


def verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def beyond(low: float | None, high: float | None, limit: float) -> str:
    """Whether a factor that lies between these is above the limit; it fails below 1 / limit."""
    if low is None or high is None:
        return OPEN
    return HOLDS if low > limit else FAILS if high < 1 / limit else OPEN


def span(values: Sequence[float], digits: int) -> str:
    """``1.2 to 3.4``, or one number."""
    return " to ".join(dict.fromkeys(significant(end, digits) for end in (min(values), max(values))))


def published(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a table of figures that a source published, by the heads of its columns, as text."""
    table = tables("published")[name]
    return tuple(dict(zip(table["columns"], row, strict=True)) for row in table["rows"])


def part(name: str, *cells: str) -> list[str]:
    """A part of a report: its title, tables, and the note below."""
    title, note = tables("words")["parts"][name]
    return [f"## {title}", *cells, note]


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table with aligned columns: the first column to the left, the others to the right."""
    from tabulate import tabulate

    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in (heads, *lines)]
    align = ["left", *["right"] * (len(heads) - 1)] if cells[1:] else None
    return str(tabulate(cells[1:], cells[0], tablefmt="pipe", disable_numparse=True, colalign=align))


def expectation_table(rows: Sequence[Expectation], *, first: str = "", judged: bool = True) -> str:
    """The rows as a table. ``first``: the head of the column of titles; "" if there is none."""
    lines = [
        [*([row.title] if first else []), row.expected, row.seen, row.holds if judged else NOT_JUDGED]
        for row in rows
    ]
    return table([*([first] if first else []), "expected", "found", "holds"], lines)


def finish(folder: Path, report: Report) -> int:
    """Writes and prints the report; 1 if something failed. ``UsageError`` for a folder that is read-only."""
    try:
        for name, content in {report.name: report.text.encode(), **report.files}.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written ({error.strerror}); the records are safe: correct this, "
            f"then run: python -m studies report {folder}"
        ) from None
    print(report.text, end="")
    for failure in report.failures:
        print(f"failed: {failure}")
    print(f"everything is in {folder}")
    return FAILURES if report.failures else OK
