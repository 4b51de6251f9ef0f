"""A finished run as tidy pandas DataFrames: ``torchduet.load("logs/RUN").comparisons``.

``COMPARISONS``, ``SAMPLES``, ``FIRST_CALLS`` and ``COMPILATIONS`` declare the columns, which
``docs/DATAFRAMES.md`` lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.metrics import of_compiling
from harness.schema import Record
from harness.shapes.sizes import sizes_of
from runner.analysis.columns import Column, columns, frame
from runner.analysis.comparison import Comparison
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.store.run_folder import RECORDS, read_run

if TYPE_CHECKING:
    import pandas as pd

KEYS = tuple(columns()[name] for name in ("job", "compiler", "environment"))
COMPARISONS = tuple(columns().values())
OF_A_RESULT = (
    *("model", "mode", "dtype", "device", "batch_size", "compiler", "status", "verdict"),
    *("n", "baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high", "p_value", "q_value"),
    *("speedup_of_medians", "compilation_latency_s", "baseline_peak_gb", "candidate_peak_gb"),
    *("memory_ratio", "break_even_steps", "worst_error", "worst_error_allowed", "failure"),
)
"""The columns of ``Result.frame()``."""
SAMPLES = (
    *KEYS,
    Column("round", "", "", "number of the round, from 0; both variants of a round are a pair"),
    Column("process", "", "", "number of the process, from 0"),
    Column("variant", "text", "", "`baseline` (eager) or `candidate`"),
    Column("position", "", "", "its place in the random order of its round, from 0"),
    Column("step_s", "s", "", "one step, the mean over the steps of the sample"),
    Column("minor_faults", "faults", "", "page faults of one step"),
)
FIRST_CALLS = (
    *KEYS,
    Column(
        "start",
        "text",
        "",
        "`timed`: the process that is timed; else of `--start-up` or `--shapes`, see `compilations`",
    ),
    Column("round", "", "", "of `--start-up` and `--shapes`: number of the round, from 0"),
    Column("call", "", "", "number of the candidate's call before timing, from 0; the first call compiles"),
    Column("call_s", "s", "", "the time of this call"),
    Column("size", "", "", "of `--shapes`: the size of its inputs"),
)
COMPILATIONS = (
    *KEYS,
    Column(
        "start",
        "text",
        "",
        "`cold`, `warm`, or `as found` (a later process of `--processes`); see *Compilation* of FORMAT.md",
    ),
    Column("round", "", "", "number of the round, from 0; rows of a round are pairs"),
    Column("status", "text", "", "how the process ended"),
    Column("failure", "text", "", "why it compiled nothing, or what is wrong"),
    Column("stored_bytes", "bytes", "", "of `--start-up`: size of what the process began with"),
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
    return Frames(
        comparisons=frame(comparisons, COMPARISONS),
        samples=_table(SAMPLES, (row for c in comparisons for row in _samples(c))),
        first_calls=_table(FIRST_CALLS, (row for c in comparisons for row in _first_calls(c))),
        compilations=_table(COMPILATIONS, (row for c in comparisons for row in _compilations(c))),
    )


def _table(declared: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    values = list(rows)
    return pd.DataFrame({c.name: pd.array([row[c.name] for row in values], dtype=c.dtype) for c in declared})


def _keys(comparison: Comparison) -> dict[str, Any]:
    return {column.name: column.value(comparison) for column in KEYS}


def _samples(comparison: Comparison) -> Iterable[dict[str, Any]]:
    samples = comparison.record.samples
    if samples is None:
        return
    keys = _keys(comparison)
    for index, process in enumerate(samples.process_of_round):
        for variant in ("baseline", "candidate"):
            yield {
                **keys,
                "round": index,
                "process": process,
                "variant": variant,
                "position": getattr(samples, f"{variant}_position")[index],
                "step_s": getattr(samples, f"{variant}_s")[index],
                "minor_faults": getattr(samples, f"{variant}_minor_faults")[index],
            }


def _first_calls(comparison: Comparison) -> Iterable[dict[str, Any]]:
    record, keys = comparison.record, _keys(comparison)
    sizes = sizes_of(shapes) if (shapes := record.job.extras.shapes) else ()
    races = [(race.start, race.round, race.first_calls_s) for race in record.compilations]
    for start, round_, calls in (("timed", None, record.first_calls_s), *races):
        for number, seconds in enumerate(calls):
            size = sizes[number % len(sizes)] if sizes and start != "timed" else None
            place = {"start": start, "round": round_, "call": number}
            yield {**keys, **place, "call_s": seconds, "size": size}


def _compilations(comparison: Comparison) -> Iterable[dict[str, Any]]:
    for compilation in comparison.record.compilations:
        yield {
            **_keys(comparison),
            "start": compilation.start,
            "round": compilation.round,
            "status": compilation.status.value,
            "failure": compilation.failure or None,
            "stored_bytes": compilation.stored_bytes,
            **{name: compilation.metrics.get(name) for name in of_compiling()},
        }
