"""The gates on compile time, memory and recompilations, in a comparison and in a run."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Extras, Record, Status
from runner.analysis.derive import summarize
from runner.cli.actions.compare import code_of
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.config import RunConfig
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import Gate, GateResult, Row, gate_result, gates_asked
from runner.runs.compare.run import load
from tests.factories import compiled_cold, known, make_environments, make_job, make_record, with_samples
from tests.unit.test_changes import MODELS, compared, gated, write
from tests.unit.test_changes_paired import compared as old_and_new
from tests.unit.test_environments_compare import records


def slower(folder: Path, second_s: float) -> RunChanges:
    """Three models, of which ``slow`` takes ``second_s`` instead of 10 s in the second run."""
    rng = random.Random(5)
    sides = [
        [
            compiled_cold(make_record(make_job(name)), seconds, rng)
            for name, seconds in (("slow", slow_s), ("b", 10), ("c", 10))
        ]
        for slow_s in (10, second_s)
    ]
    return compared(folder, *sides)


def test_a_compilation_that_takes_longer_fails_and_noise_does_not(tmp_path: Path) -> None:
    changes = slower(tmp_path / "slower", 12.5)
    (case,) = gated(changes, "compile:10%").cases
    assert case.startswith("toys slow (training, float32, cpu")
    assert re.search(r"inductor: 1\.[23]\d+x \[.*\] of the time$", case)
    assert gated(changes, "compile:40%").cases == ()
    assert gated(slower(tmp_path / "same", 10.0), "compile").cases == ()


def counted(**metrics: int) -> list[Record]:
    return [make_record(make_job(), metrics=metrics)]


def peak(ratio: float) -> list[Record]:
    return [make_record(make_job(), memory_ratio=ratio)]


NONE = [replace(make_record(make_job()), metrics={})]
NO_DATA = "no result that passed has the data for this gate"


@pytest.mark.parametrize(
    ("sides", "gate", "said"),
    [
        ([peak(1.2), peak(1.0)], "memory:10%", "1.20x of the memory"),
        ([peak(1.2), peak(1.0)], "memory:30%", ""),
        ([counted(graph_breaks=0), counted(graph_breaks=2)], "graph-breaks", "0 -> 2 graph breaks"),
        ([counted(recompiles=0), counted(recompiles=2)], "recompiles", "0 -> 2 recompilations"),
        ([counted(), counted()], "compile", "--fail-on compile: .*compiled several times: --compile-runs"),
        ([counted(), counted()], "time:5%", "two environments of one run"),
        ([peak(0.8)], "memory:10%", "1.25x of eager's memory"),
        ([counted(recompiles=3)], "recompiles", "3 recompilations"),
        ([counted(graph_breaks=0)], "graph-breaks", ""),
        ([NONE], "memory:10%", NO_DATA),
        ([NONE], "recompiles", NO_DATA),
        ([counted()], "compile:10%", "compile:10 %: no compiler has two cold compilations in two env"),
    ],
)
def test_a_gate_of_two_runs_or_of_one(
    tmp_path: Path, sides: list[list[Record]], gate: str, said: str
) -> None:
    subject = compared(tmp_path, *sides) if len(sides) > 1 else summarize(sides[0])
    try:
        told = [*gated(subject, gate).cases]
    except UsageError as error:
        told = [str(error)]
    assert [bool(re.search(said, line)) for line in told] == [True] * bool(said)


# -- a run -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("factor", "failures"), [(1.0, 0), (1.3, 1)])
def test_environments_of_a_run_are_compared_in_pairs(factor: float, failures: int) -> None:
    """A round's wobble of a factor of two hides nothing, because both environments share it."""
    candidates, both = ("inductor@base", "eager@pr", "inductor@pr"), make_environments("base", "pr")
    job = make_job(candidates=candidates, environments=both, extras=Extras(compile_runs=5))
    rng, shared = random.Random(2), (1.0, 2.0, 1.4, 0.8, 1.1)
    records = [
        replace(compiled_cold(make_record(job, f"inductor@{env}"), seconds, rng, shared), env=env)
        for env, seconds in (("base", 10.0), ("pr", 10.0 * factor))
    ]
    assert len(gated(summarize(records), "compile:10%").cases) == failures


@pytest.mark.parametrize(
    ("speedup", "jitter", "code"), [(1.2, 0.01, 1), (1.4, 0.05, 3), (1.8, 0.01, 0), (1.8, None, 2)]
)
def test_a_speedup_below_the_gates_fails_and_one_across_it_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], speedup: float, jitter: float | None, code: int
) -> None:
    record = make_record(make_job(), speedup=speedup, jitter=jitter or 0.01)
    record = record if jitter else replace(record, samples=None)
    runs = [str(write(tmp_path / name, [record])) for name in ("a", "b")]
    assert main(["--compare", *runs, "--fail-on=speedup:1.4"]) == code
    out = capsys.readouterr().out
    assert ("open, because the interval reaches across the limit" in out) is (code == 3)
    if jitter:
        (gate,) = gates_asked(["speedup:1.4"], RunConfig())
        result = gate_result(summarize([record, replace(record, candidate="eager")]), gate)
        assert (len(result.cases), len(result.open)) == (code == 1, code == 3)


def test_a_result_that_failed_has_no_speedup_to_pass_with(tmp_path: Path) -> None:
    sides = [make_record(make_job(), speedup=1.8)], [make_record(make_job(), status=Status.CRASH)]
    with pytest.raises(UsageError, match="no result that passed was timed"):
        gated(compared(tmp_path / "none", *sides), "speedup:1.4")
    other = make_record(make_job("other"), speedup=1.8)
    (case,) = gated(compared(tmp_path / "one", *([*side, other] for side in sides)), "speedup:1.4").cases
    assert case.endswith("inductor: crash")


@pytest.mark.parametrize(
    ("answers", "code"), [("FNO", 1), ("FO", 1), ("NO", 2), ("OP", 3), ("P", 0), ("FN", 1), ("N", 2)]
)
def test_a_failure_is_1_without_data_2_and_open_3(answers: str, code: int) -> None:
    """Of several answers, the smallest code."""
    gate, row = Gate(kind="regression"), Row("name", "text", ())
    results = [
        GateResult(
            gate=gate, title="t", rows=(), failed=(row,) * (answer == "F"), unsure=(row,) * (answer in "FO")
        )
        for answer in answers
        if answer != "N"
    ]
    assert code_of(results, [UsageError("no data")] * answers.count("N")) == code


# -- two environments of one run (RUN@ENV), and what Dynamo captured ---------------------------
@pytest.mark.parametrize(("factor", "failures"), [(1.0, 0), (1.2, 1)])
def test_a_compiled_step_that_became_slower_fails(tmp_path: Path, factor: float, failures: int) -> None:
    *others, new = records()
    times = tuple(factor * time for time in known(new.samples).candidate_s)
    measured = [*others, with_samples(new, candidate_s=times)]
    assert len(gated(old_and_new(tmp_path / "run", measured), "time:5%").cases) == failures


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
    lost = {"inductor@new": Status.FAIL_ACCURACY}
    measured = [record for model in MODELS for record in records(model, lost if model == MODELS[1] else None)]
    (case,) = gated(old_and_new(tmp_path / "run", measured), "parity").cases
    assert "model_1" in case
    assert "envs_" not in case
    line = ["--compare", f"{tmp_path}/run@old", f"{tmp_path}/run@new", "--format=md"]
    assert (main([*line, "--fail-on=parity"]), main([*line, "--fail-on=graph-breaks"])) == (1, 0)
    assert "results that passed before and fail now: 1" in capsys.readouterr().out
