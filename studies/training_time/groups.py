"""One table for several runs of study A, such as one in each environment: a column group for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.analysis.digits import MISSING
from studies.journal import Line
from studies.markdown import environment_text, table
from studies.training_time.published import HEADS, LABELS, PRECISIONS, minutes_text
from studies.training_time.results import Row, grouped, rows, trainings


def joint_table(runs: Sequence[Sequence[Line]], names: Sequence[str]) -> list[str]:
    """Wall times of all runs in numbered column groups, then a list of the runs by number.

    ``names``: the name of each run's folder.
    """
    made = [rows(grouped(trainings(lines))) for lines in runs]
    columns = [
        (number, precision)
        for number, found in enumerate(made)
        for precision in PRECISIONS
        if any(row.precision == precision for row in found)
    ]
    cells = {
        (number, row.precision, row.mode): _cell(row) for number, found in enumerate(made) for row in found
    }
    modes = list(dict.fromkeys(row.mode for found in made for row in found))
    return [
        "# Study A: training time, minutes:seconds, by run",
        "",
        *table(
            ["", *(f"[{number + 1}] {HEADS[precision]}" for number, precision in columns)],
            [
                [LABELS.get(m, m), *(cells.get((number, p, m), MISSING) for number, p in columns)]
                for m in modes
            ],
        ),
        "",
        *(
            f"- [{number}] {name}: {_what(lines[0])}"
            for number, (name, lines) in enumerate(zip(names, runs, strict=True), start=1)
        ),
        "",
        "The runs were measured one after another: times are paired within a run only.",
    ]


def _cell(row: Row) -> str:
    return row.status if row.wall_s is None else minutes_text(row.wall_s)


def _what(study: Line) -> str:
    sizes: Mapping[str, int] = study["sizes"]
    return f"{environment_text(study['environment'])} {sizes['steps']} steps, {sizes['seeds']} seeds."
