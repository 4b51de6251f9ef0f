"""Study A of several runs, for example one in each environment: a column group for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.digits import MISSING
from studies.journal import Line
from studies.markdown import environment_text, table
from studies.published import PRECISIONS, minutes_text
from studies.training_time_report import HEADS, LABELS
from studies.training_time_results import Row, grouped, rows, trainings


def joint_table(runs: Sequence[Sequence[Line]], names: Sequence[str]) -> list[str]:
    """Wall times of all runs side by side, numbered, and below what each of the numbers stands for.

    ``names`` has one for each run: its folder's.
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
        "Runs one after the other: only within a run are times paired.",
    ]


def _cell(row: Row) -> str:
    return row.status if row.wall_s is None else minutes_text(row.wall_s)


def _what(study: Line) -> str:
    sizes: Mapping[str, int] = study["sizes"]
    return f"{environment_text(study['environment'])} {sizes['steps']} steps, {sizes['seeds']} seeds."
