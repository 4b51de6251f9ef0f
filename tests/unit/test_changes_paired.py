"""Two environments of one run (RUN@ENV), whose rounds pair them; and several runs, which are one base."""

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.schema import Record, Samples, Status
from runner.analysis.results import STEP, PairedEstimate
from runner.analysis.statistics import paired_speedup
from runner.analysis.verdicts import Verdict
from runner.analysis.verdicts.between import pooled
from runner.analysis.verdicts.decision import difference, over_runs
from runner.runs.compare.changes import RunChanges, changes_between, shared_rounds
from runner.runs.compare.run import Member, load, results_of
from runner.runs.compare.views import WORDS, head, lists
from tests.factories import known, make_job, make_record, make_samples, with_samples
from tests.unit.test_changes import MODELS, gated, write
from tests.unit.test_changes import compared as compared_runs
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


def test_two_runs_with_the_same_numbers_resolve_less(tmp_path: Path) -> None:
    (paired,) = compared(tmp_path / "one").changes
    write(tmp_path / "two", run())
    (apart,) = between(f"{tmp_path}/one@old", f"{tmp_path}/two@new").changes
    assert (apart.rounds, apart.of(STEP)) == (0, None)
    width = [known(known(change.speedup).half_width) for change in (paired, apart)]
    assert 0 < width[0] < width[1] / 1.5


def test_several_processes_are_compared_process_by_process(tmp_path: Path) -> None:
    measured = run(noise=0.05)
    for place, record in enumerate(measured):
        if record.samples is not None and len(record.samples) == ROUNDS:
            numbers = (*range(8),) * 3
            measured[place] = with_samples(record, rounds_by_process=(8, 8, 8), round_index=numbers)
    (change,) = compared(tmp_path / "run", measured).changes
    assert change.rounds == ROUNDS
    assert known(change.of(STEP)).within(SLOWER)
    assert set(WORDS) == set(Verdict), "the rounds of such a change can also be unsteady"


def result(rounds: range, folder: str = "run") -> Member:
    eager = tuple(1.0 + number / 100 for number in rounds)
    record = make_record(make_job(), rounds=len(rounds))
    record = with_samples(record, baseline_s=eager, round_index=tuple(rounds))
    (single,) = results_of([record], {"toys": "toys"})
    return replace(single, shares=(folder, "m") if folder else None)


def test_only_rounds_that_timed_both_sides_count() -> None:
    rounds, _ = known(shared_rounds(result(range(20)), result(range(10, 40))))
    assert rounds == 10
    too_few, elsewhere, alone = result(range(16, 40)), result(range(20), "another run"), result(range(20), "")
    assert [shared_rounds(result(range(20)), other) for other in (too_few, elsewhere, alone)] == [None] * 3


# -- several runs of the base ------------------------------------------------------------------
DAYS, RUNS, ONE = 0.02, 3, paired_speedup([1.5] * ROUNDS, [1.0] * ROUNDS)


def of_a_day(log: float, noise: float) -> PairedEstimate:
    return replace(ONE, log=log, error=noise / ROUNDS**0.5, df=ROUNDS - 1.0, assumed_sd=0.006)


@pytest.mark.parametrize(("models", "noise"), [(1, 0.004), (12, 0.004), (12, 0.1)])
def test_intervals_of_no_change_hold_1(models: int, noise: float) -> None:
    """Days vary as much in the new run as in the runs of the base (``DAYS``); so does the rounds' noise."""
    rng, held, count = np.random.default_rng(3), 0, 3000 // models
    for _ in range(count):
        logs = rng.normal(0, np.hypot(DAYS, noise / ROUNDS**0.5), (models, RUNS + 1))
        pool = pooled([(float(np.std(row[:RUNS], ddof=1)), RUNS) for row in logs], None)
        for days in ([of_a_day(log, noise) for log in row] for row in logs.tolist()):
            held += known(difference(over_runs(days[:RUNS], pool), days[RUNS])).within(1)
    assert 0.93 <= held / (count * models) <= 0.98


def a_run(day: float, **slower: float) -> list[Record]:
    """The models on a day; ``slower``: of some of them, the share of their speedup."""
    return [make_record(make_job(m), speedup=1.5 * day * slower.get(m, 1), jitter=0.005) for m in MODELS]


def test_a_result_of_some_runs_is_used_and_said(tmp_path: Path) -> None:
    first, two, new = a_run(1.0), a_run(1.01)[1:], a_run(1.0)
    changes = compared_runs(tmp_path, first, [replace(two[0], status=Status.CRASH), *two[1:]], new)
    assert len(changes.timed) == len(MODELS), "the others' runs say how much its runs vary"
    (notes,) = (listed.cases for listed in lists(changes) if listed.title == "Notes")
    for note, n in zip(notes, (1, 2), strict=True):
        assert note.endswith(f"inductor: {n} of 2 runs of A can be compared, and 1 passed")
    elsewhere = [replace(r, environment={**r.environment, "threads": 8}) for r in two]
    apart = compared_runs(tmp_path / "apart", first, elsewhere, new)
    assert [len(change.first.runs) for change in apart.changes] == [1] * len(MODELS)
    assert any(line.startswith("Noise of a process: 0.60 % of a speedup, assumed") for line in head(apart))


def test_a_time_of_compiling_is_beside_those_of_the_runs(tmp_path: Path) -> None:
    *base, same, slow = ([make_record(make_job(), compilation_s=s)] for s in (9.0, 10.0, 11.0, 11.0, 20.0))
    for new, failures in ((same, 0), (slow, 1)):
        changes = compared_runs(tmp_path / str(failures), *base, new)
        assert len(gated(changes, "compile:10%").cases) == failures
