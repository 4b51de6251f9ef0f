"""A finished run as tidy pandas DataFrames: ``torchduet.load("logs/RUN").comparisons``.

``COMPARISONS``, ``SAMPLES``, ``FIRST_CALLS`` and ``COMPILATIONS`` declare the columns, which
``docs/FORMAT.md`` lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.metrics import of_compiling
from harness.schema import Record
from harness.shapes.sizes import sizes_of
from runner.analysis.columns import Column, columns, frame
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.store.run_folder import RECORDS, read_run

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[Any, ...]
KEYS = tuple(columns()[name] for name in ("job", "compiler", "environment"))
COMPARISONS = tuple(columns().values())
OF_A_RESULT = (
    *("model", "mode", "dtype", "device", "batch_size", "compiler", "status", "verdict"),
    *("n", "baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high", "p_value", "q_value"),
    *("speedup_of_medians", "compilation_latency_s", "baseline_peak_gb", "candidate_peak_gb"),
    *("memory_ratio", "break_even_steps", "worst_error", "worst_error_allowed", "failure"),
)
"""The columns of ``Result.frame()``."""


def _declared(rows: str) -> tuple[Column[Any], ...]:
    """A column of each line: name, unit (``-``: a count) and meaning."""
    lines = (line.split(maxsplit=2) for line in rows.strip().splitlines())
    return (*KEYS, *(Column(name, unit.strip("-"), meaning=meaning) for name, unit, meaning in lines))


SAMPLES = _declared("""
round - number of the round, from 0; both variants of a round are a pair
process - number of the process, from 0
variant text `baseline` (eager) or `candidate`
position - its place in the random order of its round, from 0
step_s s one step, the mean over the steps of the sample
minor_faults faults page faults of one step
""")
FIRST_CALLS = _declared("""
start text `timed`: the process that is timed; else of `--start-up` or `--shapes`, see `compilations`
round - of `--start-up` and `--shapes`: number of the round, from 0
call - number of the candidate's call before timing, from 0; the first call compiles
call_s s the time of this call
size - of `--shapes`: the size of its inputs
""")
COMPILATIONS = (
    *_declared("""
start text `cold`, `warm`, or `as found` (a later process of `--processes`); see *Compilation* of FORMAT.md
round - number of the round, from 0; rows of a round are pairs
status text how the process ended
failure text why it compiled nothing, or what is wrong
stored_bytes bytes of `--start-up`: size of what the process began with
"""),
    *(columns()[name] for name in of_compiling()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The tables of one run. Each has a row for what its name says; ``job`` and ``compiler`` join them."""

    comparisons: pd.DataFrame
    samples: pd.DataFrame
    first_calls: pd.DataFrame
    compilations: pd.DataFrame

    def __repr__(self) -> str:
        names = [field.name for field in fields(self)]
        sizes = ", ".join(f"{name}: {len(getattr(self, name))} rows" for name in names)
        return f"<Frames {sizes}>"


def load(run: str | Path) -> Frames:
    """The tables of a run: of its folder, or of its ``records.jsonl``.

    Raises ``UsageError`` if there is no run. Warns of damaged lines, whose results are left out.
    """
    path = Path(run)
    file = path / RECORDS if path.is_dir() else path
    try:
        content = read_run(file)
    except OSError as error:
        raise UsageError(
            f"load: {file} cannot be read ({error.strerror}); give the folder of a run, or its {RECORDS}"
        ) from None
    if content.damage and not content.records:
        raise UsageError(f"load: {content.damage[0]}")
    for sentence in content.damage:
        warnings.warn(sentence, stacklevel=2)
    return frames_of(content.records)


def frames_of(records: Sequence[Record]) -> Frames:
    comparisons = summarize(records).comparisons

    def table(declared: Sequence[Column[Any]], rows_of: Callable[[Record], Iterable[Row]]) -> pd.DataFrame:
        """A row of the keys and each tuple; its values are those of the other columns, in their order."""
        import pandas as pd

        keys = ((tuple(key.value(c) for key in KEYS), c.record) for c in comparisons)
        rows = [(*key, *row) for key, record in keys for row in rows_of(record)]
        return pd.DataFrame(
            {c.name: pd.array([row[i] for row in rows], dtype=c.dtype) for i, c in enumerate(declared)}
        )

    return Frames(
        comparisons=frame(comparisons, COMPARISONS),
        samples=table(SAMPLES, _samples),
        first_calls=table(FIRST_CALLS, _first_calls),
        compilations=table(COMPILATIONS, _compilations),
    )


def _samples(record: Record) -> Iterable[Row]:
    if (samples := record.samples) is None:
        return
    for index, process in enumerate(samples.process_of_round):
        for variant in ("baseline", "candidate"):
            of_variant = (getattr(samples, f"{variant}_{name}") for name in ("position", "s", "minor_faults"))
            yield index, process, variant, *(values[index] for values in of_variant)


def _first_calls(record: Record) -> Iterable[Row]:
    sizes = sizes_of(shapes) if (shapes := record.job.extras.shapes) else ()
    races = [(race.start, race.round, race.first_calls_s) for race in record.compilations]
    for start, round_, calls in (("timed", None, record.first_calls_s), *races):
        for number, seconds in enumerate(calls):
            size = sizes[number % len(sizes)] if sizes and start != "timed" else None
            yield start, round_, number, seconds, size


def _compilations(record: Record) -> Iterable[Row]:
    for race in record.compilations:
        metrics = (race.metrics.get(name) for name in of_compiling())
        yield race.start, race.round, race.status.value, race.failure or None, race.stored_bytes, *metrics
