"""torchduet.load(run): three tidy DataFrames with declared columns and types."""

import math
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

import torchduet
from harness.metrics import declared
from harness.schema import Record
from runner.analysis.columns import GENERATION, Column, columns, frame, own_columns
from runner.analysis.derive import summarize
from runner.analysis.results import Result
from runner.errors import UsageError
from tests.factories import make_job, make_numerics, make_record, synthetic_run, with_samples
from tests.unit.test_changes import write
from torchduet.frames import COMPARISONS, COMPILATIONS, FIRST_CALLS, SAMPLES, frames_of

Columns = tuple[Column[Result], ...]


def a_record(**changes: object) -> Record:
    return replace(make_record(make_job("net"), speedup=1.5), first_calls_s=(3.0, 0.1), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        *(("comparisons", COMPARISONS), ("samples", SAMPLES)),
        *(("first_calls", FIRST_CALLS), ("compilations", COMPILATIONS)),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_columns_and_types_are_those_declared(name: str, columns: Columns, empty: bool) -> None:
    table = getattr(frames_of(() if empty else synthetic_run()), name)
    assert {n: str(dtype) for n, dtype in table.dtypes.items()} == {c.name: c.dtype for c in columns}


def test_a_count_of_a_damaged_record_may_be_larger_than_a_table_can_hold() -> None:
    (comparison,) = summarize([a_record()]).comparisons
    values = (2**63, 2**63 - 512, 2**62, -(2**64), math.inf, 8)
    shown = frame([comparison], [Column(f"{n}", "", Mock(return_value=n)) for n in values]).iloc[0]
    assert [None if pd.isna(value) else int(value) for value in shown] == [None, None, 2**62, None, None, 8]


def test_every_column_has_a_name_of_its_own_and_a_source_in_a_full_record() -> None:
    assert len(columns()) == len(own_columns()) + sum(len(metric.names) for metric in declared().metrics)
    (comparison,) = summarize([a_record(numerics=make_numerics())]).comparisons
    values = {column.name: column.value(comparison) for column in own_columns()}
    missing = {name for name, value in values.items() if value is None}
    others = (GENERATION, "trajectory")
    of_generation = {column.name for column in own_columns() if column.group in others}
    factors = ("over_plain", "system_speedup", "allocator_factor")
    plain = {f"{name}{end}" for name in factors for end in ("", "_low", "_high")}
    assert missing - of_generation - plain == {
        *("open_because", "closes_with", "calibrated", "environment", "unsteady"),
        *("between_sd", "between_df", "changes", "found_by", "notes"),
        *("worst_failure", "resolution_median", "resolution_largest", "failure"),
        *(
            "worst_noisy_error",
            "resolution_outputs",
            "resolution_gradients",
            "judged_finely",
            "approximate_sqnr_db",
        ),
    }


def test_a_value_of_another_type_is_missing_and_no_error() -> None:
    record = a_record(
        metrics={"graph_breaks": "many", "compiled_region": 3, "compile_cpu_s": "inf", "recompiles": True}
    )
    (row,) = frames_of([record]).comparisons.to_dict("records")
    assert pd.isna(row["graph_breaks"])
    assert pd.isna(row["compile_cpu_s"])
    assert (row["compiled_region"], row["recompiles"]) == ("3", 1)


def test_processes_and_first_calls_are_numbered() -> None:
    data_frame = frames_of([with_samples(a_record(), rounds_by_process=(8, 12))]).samples
    assert data_frame.groupby("process").size().to_dict() == {0: 16, 1: 24}
    table = frames_of([a_record()]).first_calls
    assert (list(table["call"]), list(table["call_s"])) == ([0, 1], [3.0, 0.1])


def test_a_folder_or_its_records_can_be_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [a_record()])
    for path in (folder, str(folder / "records.jsonl")):
        assert (
            repr(torchduet.load(path))
            == "<Frames comparisons: 1 rows, samples: 40 rows, first_calls: 2 rows, compilations: 0 rows>"
        )
    with pytest.raises(UsageError, match="give the folder of a run"):
        torchduet.load(tmp_path / "nothing")


def test_damage_of_what_is_loaded_is_said(tmp_path: Path) -> None:
    file = write(tmp_path / "run", [a_record()]) / "records.jsonl"
    with file.open("a") as lines:
        lines.write("garbage\n")
    with pytest.warns(UserWarning, match="line 2"):
        assert len(torchduet.load(file).comparisons) == 1
    file.write_text("{}\n")
    with pytest.raises(UsageError, match=r"load: .*line 1"):
        torchduet.load(file)
