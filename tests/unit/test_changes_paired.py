"""Two environments of one run (RUN@ENV): the rounds that timed both sides pair them."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Record, Samples
from runner.analysis.digits import estimate_text
from runner.analysis.estimate import Verdict
from runner.runs.compare.changes import RunChanges, changes_between, shared_rounds
from runner.runs.compare.load import load, results_of
from runner.runs.compare.run import Result
from runner.runs.compare.words import SIDE_BY_SIDE, WORDS, tables
from tests.factories import known, make_job, make_record, make_samples, with_samples
from tests.unit.test_changes import write
from tests.unit.test_environments_compare import records

ROUNDS = 24
SLOWER = 1.10  # inductor's step in the new environment over its step in the old one
EAGER = 0.95


def side(eager: float, compiled: float, rounds: list[float], seed: str) -> Samples:
    own = random.Random(seed)
    jitter = [(math.exp(own.gauss(0, 0.002)), math.exp(own.gauss(0, 0.002))) for _ in rounds]
    pairs = list(zip(rounds, jitter, strict=True))
    return replace(
        make_samples(rounds=ROUNDS),
        baseline_s=tuple(eager * slow * a for slow, (a, _) in pairs),
        # the machine hurts the compiled step more than eager: a run's own pairs do not cancel it
        candidate_s=tuple(compiled * slow**2 * b for slow, (_, b) in pairs),
        reference_s=tuple(0.010 * slow for slow, _ in pairs),  # of the reference, for both sides
        reference_position=(0,) * ROUNDS,
        round_index=tuple(range(ROUNDS)),
    )


def run(noise: float = 0.2, models: int = 1) -> list[Record]:
    measured = []
    for model in (f"model_{number}" for number in range(models)):
        numbers = random.Random(model)
        # of each round: the machine is up to twice as slow in some, for both sides alike
        slow = [math.exp(numbers.gauss(0, noise)) for _ in range(ROUNDS)]
        times = {"inductor@old": (0.010, 0.005), "inductor@new": (0.010 * EAGER, 0.005 * SLOWER)}
        for record in records(model):
            if record.candidate in times and record.samples is not None:
                timed = side(*times[record.candidate], slow, f"{model}{record.candidate}")
                record = replace(record, samples=timed)  # noqa: PLW2901
            measured.append(record)
    return measured


def compared(folder: Path, measured: list[Record] | None = None) -> RunChanges:
    write(folder, run() if measured is None else measured)
    return between(f"{folder}@old", f"{folder}@new")


def between(first: str, second: str) -> RunChanges:
    return changes_between(load("--compare", Path(first)), load("--compare", Path(second)))


def test_a_change_comes_from_the_rounds_of_both_sides(tmp_path: Path) -> None:
    (change,) = compared(tmp_path / "run").changes
    assert change.factors.rounds == ROUNDS
    compiled, speedup = known(change.factors.compiled), known(change.speedup)
    assert compiled.factor == pytest.approx(SLOWER, rel=0.005)
    assert known(change.factors.eager).factor == pytest.approx(EAGER, rel=0.005)
    assert speedup.factor == pytest.approx(EAGER / SLOWER, rel=0.005)
    assert not compiled.within(1.04)  # the rounds vary by 20 %; processes, as assumed, by 2 %
    assert not speedup.within(0.93)


def test_three_times_stand_side_by_side(tmp_path: Path) -> None:
    """Of a pull request: eager before, eager now, compiled now."""
    changes = compared(tmp_path / "run", run(noise=0.02))
    *_, (table, _) = tables(changes)
    cells = dict(zip(table.header, table.rows[0], strict=True))
    eager, now, compiled = (float(cells[name].split()[0]) for name in SIDE_BY_SIDE)
    assert eager == pytest.approx(10.0, rel=0.05)
    assert now == pytest.approx(10.0 * EAGER, rel=0.05)
    assert compiled == pytest.approx(5.0 * SLOWER, rel=0.05)
    change = changes.changes[0]
    assert cells["eager B, ms\n(x of A's time)"].endswith(f"({estimate_text(change.factors.eager)})")
    assert cells["compiled B, ms\n(speedup)"].endswith(f"({estimate_text(change.second.speedup)})")
    write(tmp_path / "other", run())
    *_, (table, _) = tables(between(f"{tmp_path}/run@old", f"{tmp_path}/other@new"))
    assert not {*SIDE_BY_SIDE} & {*table.header}


def test_two_runs_with_the_same_numbers_resolve_less(tmp_path: Path) -> None:
    (paired,) = compared(tmp_path / "one").changes
    write(tmp_path / "two", run())
    (apart,) = between(f"{tmp_path}/one@old", f"{tmp_path}/two@new").changes
    assert apart.factors.rounds == 0
    assert apart.factors.compiled is None
    width = [known(known(change.speedup).half_width) for change in (paired, apart)]
    assert 0 < width[0] < width[1] / 1.5


def test_several_processes_are_compared_process_by_process(tmp_path: Path) -> None:
    measured = run(noise=0.05)
    for place, record in enumerate(measured):
        if record.samples is not None and len(record.samples) == ROUNDS:
            numbers = (*range(8),) * 3
            measured[place] = with_samples(record, rounds_by_process=(8, 8, 8), round_index=numbers)
    (change,) = compared(tmp_path / "run", measured).changes
    assert change.factors.rounds == ROUNDS
    assert known(change.factors.compiled).within(SLOWER)
    assert set(WORDS) == set(Verdict), "the rounds of such a change can also be unsteady"


def result(rounds: range, folder: str = "run") -> Result:
    eager = tuple(1.0 + number / 100 for number in rounds)
    record = make_record(make_job(), rounds=len(rounds))
    record = with_samples(record, baseline_s=eager, round_index=tuple(rounds))
    (single,) = results_of([record], {"toys": "toys"})
    return replace(single, shares=(folder, "m") if folder else None)


def test_only_rounds_that_timed_both_sides_count() -> None:
    shared = known(shared_rounds(result(range(20)), result(range(10, 40))))
    assert shared.rounds == 10
    assert shared_rounds(result(range(20)), result(range(16, 40))) is None  # too few for an interval
    assert shared_rounds(result(range(20)), result(range(20), "another run")) is None
    assert shared_rounds(result(range(20)), result(range(20), "")) is None
