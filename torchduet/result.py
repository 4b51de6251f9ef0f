"""The result of ``compare()``: one result per compiler, as a table, a picture or a DataFrame."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends import backend_names, registered
from harness.backends.settings.candidates import compiler_of
from harness.schema import Job, Record
from runner.analysis.columns import columns, frame
from runner.analysis.derive import summarize
from runner.analysis.texts import compiler_name
from runner.errors import UsageError
from runner.names import job_title, plain
from runner.reports.parts.grid import Table
from runner.reports.parts.sections import compilers, sections
from runner.reports.views import RESULTS
from torchduet.asserting import check_count, check_same, check_speed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.analysis import results
    from runner.analysis.results import Summary
    from runner.runs.why.explain import Why

TABLE_WIDTH = 160
NOTEBOOK_WIDTH = 110  # characters that fit into a notebook
ALT = "speedup of each compiler with its interval"


class UnknownCompilerError(UsageError, KeyError):
    """The result has no comparison with this name. The message lists the names."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of ``compare()``, which prints as a table. ``isolated``: worker processes measured it.

    A collection of comparisons, in the order of the compilers: ``len(result)``, ``for c in result``,
    ``result["inductor"]``, ``"inductor" in result``.
    """

    records: tuple[Record, ...]
    isolated: bool
    folder: Path | None = None
    _again: Callable[[Job], tuple[Record, ...]] | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> Any:
        """Without the model: ``why()`` of a copy cannot measure again."""
        return partial(Result, records=self.records, isolated=self.isolated, folder=self.folder), ()

    @property
    def summary(self) -> Summary:
        return summarize(self.records)

    @property
    def comparisons(self) -> tuple[results.Result, ...]:
        """Speedup, interval, p, q and verdict of each compiler, in the given order."""
        return self.summary.comparisons

    @property
    def compilers(self) -> tuple[str, ...]:
        """The compilers' names in tables; eager as a candidate is ``eager (A/A)``."""
        return tuple(compiler_name(comparison.compiler) for comparison in self.comparisons)

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return True  # also without records

    def __iter__(self) -> Iterator[results.Result]:
        return iter(self.comparisons)

    def __contains__(self, compiler: object) -> bool:
        return any(compiler in _names(comparison) for comparison in self.comparisons)

    def __getitem__(self, compiler: str) -> results.Result:
        """One compiler's comparison with eager. Raises ``UnknownCompilerError``, a ``KeyError``."""
        for comparison in self.comparisons:
            if compiler in _names(comparison):
                return comparison
        names = ", ".join(self.compilers)
        raise UnknownCompilerError(f"there is no compiler {compiler!r} in this result; it has {names}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers do not cover, and what was assumed."""
        notes = (note for note in self.records[0].notes if all(note in r.notes for r in self.records))
        return (*self.summary.caveats, *(f"{note[0].upper()}{note[1:]}." for note in notes))

    def table(self, width: int = TABLE_WIDTH) -> str:
        """The report as the command line prints it, in ``width`` characters."""
        from rich.console import Console

        from runner.reports.console import print_answer, print_report

        text = io.StringIO()
        console = Console(file=text, width=width, color_system=None, force_jupyter=False)
        print_report(
            replace(self.summary, caveats=self.notes), console, elsewhere="result.frame()", full=True
        )
        print_answer(self.summary, console, full=True)
        return text.getvalue()

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        """One line: ``<Result MLP (training, float32, cpu): inductor: pass, 1.31x [1.2, 1.4], ...>``"""
        outcomes = "; ".join(map(repr, self.comparisons))
        return f"<Result {job_title(self.records[0].job)}: {outcomes}>"

    def _repr_html_(self) -> str:
        """For notebooks: table, warnings and picture, as HTML without other files."""
        return "\n".join(_lines(self))

    def why(self, compiler: str | None = None) -> Explanation:
        """Why this compiler (default: the slowest with settings) is slower or faster: ``docs/WHY.md``.

        Compiles the model up to six times more. Raises ``runner.errors.UsageError`` if the compiler has no
        times or no settings to test.
        """
        from runner.runs.why.asking import asked_why  # few results are explained
        from runner.runs.why.explain import NoTimes

        timed = [comparison for comparison in self.comparisons if comparison.speedup is not None]
        if not timed:
            raise UsageError("why: nothing was timed, so there is nothing to explain")
        able = [c for c in timed if self._has_settings(c.record)] or timed
        slowest = min(able, key=lambda comparison: comparison.speedup or 0.0)
        comparison = self[compiler] if compiler else slowest
        if comparison not in timed:
            raise UsageError(f"why: {comparison.compiler} has no times ({comparison.status.value})")
        name, again = comparison.record.candidate, self._again
        if again is None:
            raise UsageError("why: this result cannot be measured again; use the result of compare()")
        if not self._has_settings(comparison.record):
            raise UsageError(f"why: {name} has no settings to test; name a backend of torch.compile")
        job = replace(comparison.record.job, candidates=(name,))
        try:
            return Explanation(why=asked_why(job, again))
        except NoTimes as error:
            raise UsageError(f"why: {error}") from None

    def _has_settings(self, record: Record) -> bool:
        """Whether settings of the candidate can be tested. A worker may know backends of the model's file."""
        name = record.candidate
        known = self.isolated or compiler_of(name) in (*backend_names(), *registered())
        return known and compiler_of(name) != "eager" and name not in record.job.own_compilers

    def assert_same(self) -> None:
        """``AssertionError`` with the worst tensor, unless parity passed for each compiler."""
        __tracebackhide__ = True  # of pytest: it shows the line of the test
        check_same(self.comparisons)

    def assert_not_slower(self, threshold: float | None = None) -> None:
        """``AssertionError`` for what is slower by more than ``threshold``, twice, or failed.

        The default is the noise threshold. What is slower is measured again. A warning says what is open.
        """
        __tracebackhide__ = True
        check_speed(self.comparisons, threshold, self._again)

    def assert_no_graph_breaks(self) -> None:
        """``AssertionError`` with reasons and lines of code."""
        __tracebackhide__ = True
        check_count(self.comparisons, "graph_breaks", self._again)

    def assert_no_recompiles(self) -> None:
        """``AssertionError`` with the reasons, if a graph was compiled again."""
        __tracebackhide__ = True
        check_count(self.comparisons, "recompiles", self._again)

    def frame(self) -> pd.DataFrame:
        """A row per compiler, with unrounded numbers."""
        from torchduet.frames import OF_A_RESULT

        return frame(self.comparisons, [columns()[name] for name in OF_A_RESULT])

    def plot(self, path: str | Path | None = None) -> Figure:
        """The forest plot of speedups with their intervals; written to ``path`` (PNG) if given.

        Raises ``ValueError`` if nothing was timed, and ``UsageError`` for a file that cannot be written.
        """
        from runner.reports.parts.pictures import png
        from runner.reports.speedup_plot import draw

        summary = self.summary
        panels = [section for section in sections(summary) if section.rounds]
        if not panels:
            raise ValueError("nothing was timed, so there is no plot; print the result to see why")
        figure = draw(panels, compilers(summary))
        if path is not None:
            try:
                Path(path).write_bytes(png(figure))
            except OSError as error:
                raise UsageError(f"plot: {path} cannot be written ({error.strerror})") from None
        return figure


def _names(comparison: results.Result) -> tuple[str, ...]:
    return comparison.record.candidate, comparison.compiler, compiler_name(comparison.compiler)


# -- in a notebook: table, warnings and picture in one piece of HTML --------------------------


def _lines(result: Result) -> Iterator[str]:
    """The HTML of a result. All text is escaped."""
    summary = result.summary
    yield f"<div><p><b>{_text(job_title(result.records[0].job))}</b></p>"
    yield from map(_table, RESULTS.tables(summary))
    for comparison in summary.comparisons:
        for what, lines in comparison.explanations():
            yield _list(f"{compiler_name(comparison.compiler)}: {what}", lines)
    for finding in summary.warnings:
        yield _list(finding.title, finding.cases)
        yield f"<p>{_text(finding.advice)}</p>"
    yield _list("Notes", result.notes)
    if any(comparison.speedup is not None for comparison in summary.comparisons):
        file = io.BytesIO()
        result.plot().savefig(file, format="png", dpi=100, bbox_inches="tight")
        data = base64.b64encode(file.getvalue()).decode()
        yield f'<img alt="{ALT}" style="max-width: 100%" src="data:image/png;base64,{data}">'
    yield "</div>"


def _table(whole: Table) -> str:
    from tabulate import tabulate

    table = whole.within(NOTEBOOK_WIDTH)
    return tabulate(
        [[_line(text) for text in row] for row in table.rows],
        [_line(header) for header in table.header],
        tablefmt="html",  # it escapes the texts
        disable_numparse=True,
        colalign=["right" if number else "left" for number in table.numbers],
    )


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<p><b>{_text(title)}</b></p><ul>{items}</ul>"


def _text(text: str) -> str:
    return escape(_line(text))


def _line(text: str) -> str:
    return plain(text.replace("\n", " "))


# -- why ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What ``--why`` prints. ``why`` has its parts."""

    why: Why

    def json(self) -> dict[str, Any]:
        """The content of ``why.json``."""
        from runner.runs.why.words import as_json

        return as_json([self.why])

    def __str__(self) -> str:
        from rich.console import Console

        from runner.runs.why.words import show

        text = io.StringIO()
        show(self.why, Console(file=text, width=NOTEBOOK_WIDTH, color_system=None, force_jupyter=False))
        return text.getvalue()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
