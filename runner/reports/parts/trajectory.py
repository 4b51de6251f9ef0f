"""The training runs of ``--trajectory``: whether a candidate stays where roundings lead eager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType

from runner.analysis.columns import Column, columns, text_column
from runner.analysis.results import Result, Summary
from runner.analysis.texts import compiler_name
from runner.analysis.verdicts.trajectory import FACTOR
from runner.reports.parts.ratios import of_job
from runner.reports.parts.sections import plot_name
from runner.reports.parts.view import Part, View

HEADERS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "trajectory": ("training run", 0),
        "trajectory_ratio": ("x noisy", 0),
        "trajectory_loss": ("loss is off by", 2),
        "trajectory_noisy_loss": ("noisy eager's", 3),
        "trajectory_seed_loss": ("another seed's", 4),
        "trajectory_horizon": ("judged up to\nstep", 5),
    }
)
"""Of the columns of results that the table has, with the order in which they are left out."""
NOTE = (
    "Loss: distance from eager's, relative to its size. x noisy: the largest distance of loss, gradient norm "
    f"or parameters / that of the furthest of four noisy eagers; outside is above {FACTOR:g}."
)


def _rows(summary: Summary) -> list[Result]:
    return [row for row in summary.comparisons if row.record.trajectory is not None]


def _columns(summary: Summary) -> Iterator[Column[Result]]:
    yield from of_job(summary, attrgetter("record"))
    yield Column("candidate", "text", "record.candidate")
    yield text_column("candidate", lambda row: compiler_name(row.compiler))
    for name, column in columns().items():
        if name.startswith("trajectory"):
            header, drop = HEADERS.get(name, ("", 0))
            yield replace(column, header=header, drop=drop)


def _parts(summary: Summary) -> Iterator[Part[Result]]:
    """A table for runs of the same kind."""
    parts: dict[str, list[Result]] = {}
    for row in _rows(summary):
        known = row.record.trajectory
        assert known is not None
        rate = "" if known.learning_rate is None else f" at a rate of {known.learning_rate:g}"
        data = "other batches in each step" if known.data == "batches" else "the same batch in each step"
        title = f"Training runs: {known.steps} steps, {known.optimizer}{rate}, {data}"
        parts.setdefault(title, []).append(row)
    yield from parts.items()


def trajectory_plot(summary: Summary, row: Result) -> str:
    """The file of its picture."""
    job = row.record.job
    return plot_name(summary.labels[job.case.suite], job.dtype, "_trajectories")


def _pictures(summary: Summary, rows: Sequence[Result]) -> list[str]:
    return [trajectory_plot(summary, row) for row in rows]


TRAJECTORIES: View[Summary, Result] = View(
    *("trajectories", _rows, _columns),
    parts=_parts,
    group=lambda row: row.record.job.key,
    notes=lambda *_: [NOTE],
    pictures=_pictures,
)
