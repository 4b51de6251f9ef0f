"""Two environments of one run compared like two runs (RUN@ENV), and the gates on what Dynamo captured."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Record, Status
from runner.cli.main import main
from runner.errors import UsageError
from runner.runs.compare.changes import RunChanges, changes_between
from runner.runs.compare.load import load
from tests.factories import make_job, make_record
from tests.unit.test_changes import MODELS, compared, gated, write
from tests.unit.test_environments_compare import records


def sides(folder: Path, *, lost: str = "") -> RunChanges:
    """Of the environments old and new; inductor fails in the new one on the model ``lost``."""
    measured = [
        record
        for model in MODELS
        for record in records(model, {"inductor@new": Status.FAIL_ACCURACY} if model == lost else None)
    ]
    write(folder, measured)
    return changes_between(load("--compare", Path(f"{folder}@old")), load("--compare", Path(f"{folder}@new")))


def test_environments_of_a_run_are_compared_by_compiler(tmp_path: Path) -> None:
    changes = sides(tmp_path / "run")
    assert [(c.first.compiler, c.second.compiler) for c in changes.changes] == [("inductor", "inductor")] * 6
    assert (changes.only_first, changes.only_second, changes.mismatches) == ((), (), ())
    assert changes.incomparable == ()
    speedups = [c.speedup.factor for c in changes.changes if c.speedup]
    assert speedups == pytest.approx([2.0] * 6, rel=0.03)  # 2x over its eager in old, 4x in new


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("run@newer", "has no environment 'newer'; its environments are old, new"),
        ("plain@new", "has no environment 'new'; it was measured without --envs"),
        ("nothing@new", "there is no"),
    ],
)
def test_an_environment_that_is_not_there_is_said(tmp_path: Path, name: str, says: str) -> None:
    write(tmp_path / "run", records())
    write(tmp_path / "plain", [make_record(make_job())])
    with pytest.raises(UsageError, match=says):
        load("--compare", tmp_path / name)


def test_a_failure_of_one_environment_is_a_new_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = gated(sides(tmp_path / "run", lost="model_1"), "parity").cases
    assert "model_1" in case
    assert "envs_" not in case
    line = ["--compare", f"{tmp_path}/run@old", f"{tmp_path}/run@new", "--format=md"]
    assert main([*line, "--fail-on=parity"]) == 1
    assert main([*line, "--fail-on=graph-breaks"]) == 0
    assert "results that passed before and fail now: 1" in capsys.readouterr().out


# -- gates on counts -------------------------------------------------------------------------------------


def counted(**metrics: int) -> list[Record]:
    return [make_record(make_job("model", candidates=("inductor",)), metrics=dict(metrics))]


@pytest.mark.parametrize(
    ("metric", "gate", "before", "after", "fails"),
    [
        ("calls_captured", "calls-captured", 90, 60, True),
        ("calls_captured", "calls-captured", 90, 90, False),
        ("calls_captured", "calls-captured", 90, 95, False),
        ("eager_fallbacks", "eager-fallbacks", 0, 2, True),
        ("eager_fallbacks", "eager-fallbacks", 2, 0, False),
    ],
)
def test_a_count_that_became_worse_fails(
    tmp_path: Path, metric: str, gate: str, before: int, after: int, fails: bool
) -> None:
    cases = gated(compared(tmp_path, counted(**{metric: before}), counted(**{metric: after})), gate).cases
    assert bool(cases) is fails
    assert all(
        case.endswith(f"{before} -> {after} {gate.replace('-', ' ')}") or "captured" in case for case in cases
    )


def test_a_gate_without_counts_never_passes(tmp_path: Path) -> None:
    without = [replace(record, metrics={}) for record in counted()]
    with pytest.raises(UsageError, match="no shared result has the number of eager fallbacks in both"):
        gated(compared(tmp_path, without, counted(eager_fallbacks=0)), "eager-fallbacks")
