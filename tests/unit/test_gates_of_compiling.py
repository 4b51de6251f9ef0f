"""The gates on compile time, memory and recompilations, in a comparison and in a run; and ``--accept``."""

import math
import random
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from harness.schema import COLD, Environment, Extras, Record
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.runs.compare.accepted import accepted_in, without_accepted
from runner.runs.compare.changes import RunChanges
from runner.runs.compare.gates import Gate, GateResult, gates_asked
from runner.runs.compare.of_run import gates_of_run, run_results
from tests.factories import compiled, make_job, make_record
from tests.unit.test_changes import compared, gated

TODAY = date(2026, 11, 23)


def timed(
    record: Record, seconds: float, rng: random.Random, shared: tuple[float, ...] = (1.0,) * 5
) -> Record:
    """With five cold compilations, of 3 % noise."""
    return replace(
        record,
        compilations=tuple(
            compiled(COLD, seconds * wobble * math.exp(rng.gauss(0.0, 0.03)), number)
            for number, wobble in enumerate(shared)
        ),
    )


def slower(folder: Path, second_s: float) -> RunChanges:
    """Three models, of which ``slow`` takes ``second_s`` instead of 10 s in the second run."""
    rng = random.Random(5)
    sides = [
        [timed(make_record(make_job(name)), s, rng) for name, s in (("slow", slow_s), ("b", 10), ("c", 10))]
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


def test_one_compilation_is_no_data_for_the_gate(tmp_path: Path) -> None:
    changes = compared(tmp_path, [make_record(make_job())], [make_record(make_job())])
    with pytest.raises(UsageError, match=r"--fail-on compile: .*compiled several times: --compile-runs"):
        gated(changes, "compile")


def test_memory_and_recompilations(tmp_path: Path) -> None:
    before = make_record(make_job(), memory_ratio=1.2, metrics={"recompiles": 0})
    after = make_record(make_job(), memory_ratio=1.0, metrics={"recompiles": 2})
    changes = compared(tmp_path, [before], [after])
    assert gated(changes, "memory:10%").cases[0].endswith("1.20x of the memory")
    assert gated(changes, "memory:30%").cases == ()
    assert gated(changes, "recompiles").cases[0].endswith("0 -> 2 recompilations")


# -- a run -----------------------------------------------------------------------------------------


def results(records: list[Record], *words: str) -> list[tuple[str, ...]]:
    return [result.cases for result in run_results(summarize(records), gates_asked(words))]


def test_a_run_alone_has_gates() -> None:
    record = make_record(make_job(), memory_ratio=0.8, metrics={"recompiles": 3, "eager_fallbacks": 0})
    memory, recompiles, fallbacks = results([record], "memory:10%", "recompiles", "eager-fallbacks")
    assert memory == ("toys model (training, float32, cpu), inductor: 1.25x of eager's memory",)
    assert recompiles == ("toys model (training, float32, cpu), inductor: 3 recompilations",)
    assert fallbacks == ()


@pytest.mark.parametrize(("factor", "failures"), [(1.0, 0), (1.3, 1)])
def test_environments_of_a_run_are_compared_in_pairs(factor: float, failures: int) -> None:
    """A round's wobble of a factor of two hides nothing, because both environments share it."""
    both = tuple(Environment(name=name, python=name, asked=name) for name in ("base", "pr"))
    candidates = ("inductor@base", "eager@pr", "inductor@pr")
    job = make_job(candidates=candidates, environments=both, extras=Extras(compile_runs=5))
    rng, shared = random.Random(2), (1.0, 2.0, 1.4, 0.8, 1.1)
    records = [
        replace(timed(make_record(job, f"inductor@{env}"), seconds, rng, shared), env=env)
        for env, seconds in (("base", 10.0), ("pr", 10.0 * factor))
    ]
    (found,) = results(records, "compile:10%")
    assert len(found) == failures


def test_without_two_compilations_a_side_the_gate_does_not_pass() -> None:
    with pytest.raises(UsageError, match="compile:10 %: no compiler has two cold compilations in two env"):
        results([make_record(make_job())], "compile:10%")


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("regression", "--fail-on: regression needs two runs (--compare); a run has compile, memory, "),
        ("compile:10%", "--fail-on: compile compares environments of a run, compiled several times; add"),
        ("recompile", "there is no kind of change called 'recompile'"),
    ],
)
def test_a_gate_that_a_run_cannot_answer_is_refused_at_the_door(word: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        gates_of_run([word], environments=False, compile_runs=True)
    assert sentence in str(error.value)


# -- accepted changes ------------------------------------------------------------------------------

FILE = """
[[accepted]]
gate = "compile"
result = "toys slow*"
reason = "a new pass"
expires = {expires}
"""
GOOD = FILE.format(expires="2027-01-01")


def file(folder: Path, text: str) -> Path:
    path = folder / "accepted.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("expires", "passes"), [("2026-11-23", True), ("2026-11-22", False)])
def test_an_accepted_change_passes_until_its_date(tmp_path: Path, expires: str, passes: bool) -> None:
    accepted = accepted_in(file(tmp_path, FILE.format(expires=expires)))
    found = GateResult(gate=Gate(kind="compile"), title="t", cases=("toys slow: 1.3x", "toys other: 1.3x"))
    (judged,) = without_accepted([found], accepted, TODAY)
    if passes:
        assert judged.cases == ("toys other: 1.3x",)
        assert judged.accepted == (f"toys slow: 1.3x (accepted until {expires}: a new pass)",)
    else:
        assert judged.cases[0] == f"toys slow: 1.3x (was accepted until {expires}: a new pass)"
    other = replace(found, gate=Gate(kind="memory"))
    assert without_accepted([other], accepted, TODAY) == [other]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[accepted", "is no TOML"),
        ("", "must hold tables [[accepted]], and nothing else"),
        ("[[accepted]]\ngate = 'compile'", "entry 1 of"),
        (FILE.format(expires="'2027-01-01'"), "expires must be a date without quotes, such as 2027-03-31"),
        (GOOD.replace("a new pass", " "), "reason must be a text that is not empty"),
        (GOOD.replace('"compile"', '"compiles"'), "there is no gate called 'compiles'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        accepted_in(file(tmp_path, text))
    assert str(error.value).startswith("--accept: ")
    assert sentence in str(error.value)
    assert "accepted.toml" in str(error.value)
