"""``--confirm``: a case fails its gate only if processes that were measured after the selection fail it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.schema import Record, Status
from runner.engine.experiments import confirming, next_attempt
from runner.runs.compare.confirm import gates_of_run, to_confirm
from runner.runs.compare.gates import GateResult, gates_asked
from tests.factories import make_environments, make_job, make_record, make_samples
from tests.unit.test_environments_compare import ENVIRONMENTS

ROUNDS, SIDES = 12, ("inductor@old", "inductor@new")
RUN = Path("run")
REGRESSION = gates_asked(["regression:5%"])


def process(
    number: int, changes: Sequence[float], rng: np.random.Generator, between: float, confirms: str = ""
) -> list[Record]:
    """A process of each model: inductor's log speedup changes by so much from old to new.

    ``between``: the standard deviation of a side's log speedup between processes; rounds vary by 1 %.
    """
    records = []
    for model, change in enumerate(changes):
        job = make_job(f"model_{model}", environments=ENVIRONMENTS, candidates=SIDES)
        for name, log in zip(SIDES, (0.0, change), strict=True):
            logs = log + rng.normal(0, between) + rng.normal(0, 0.01, ROUNDS)
            samples = replace(
                make_samples(rounds=ROUNDS),
                baseline_s=(0.01,) * ROUNDS,
                candidate_s=tuple(0.005 * np.exp(-logs)),
                reference_s=tuple(0.01 + 1e-6 * place for place in range(ROUNDS)),
                round_index=tuple(range(ROUNDS)),
            )
            record = replace(make_record(job, name), samples=samples, env=name.rpartition("@")[2])
            records.append(replace(record, process=number, confirms=confirms, assumed_between_sd=0.006))
    return records


def judged(processes: Sequence[Record], *, confirm: bool = True) -> GateResult:
    (result,), refusals = gates_of_run(RUN, (), processes, REGRESSION, confirm=confirm)
    assert refusals == []
    return result


def measured_again(
    first: list[Record], changes: Sequence[float], rng: np.random.Generator, between: float
) -> list[Record]:
    """The processes that ``--confirm`` adds, as many as the first ones."""
    chosen = to_confirm(RUN, first, REGRESSION)
    count = 1 + max(record.process for record in first)
    later = (process(count + n, changes, rng, between, "regression:5 %") for n in range(count))
    return [r for records in later for r in records if (r.job.key, r.candidate, "") in chosen]


def alarms(
    change: float, between: float, runs: int, processes: int, models: int = 10, seed: int = 1
) -> tuple[float, float]:
    """The share of models by which the gate fails: without and with ``--confirm``."""
    rng, counts = np.random.default_rng(seed), [0, 0]
    for _ in range(runs):
        changes = [change] * models
        first = [r for n in range(processes) for r in process(n, changes, rng, between)]
        once = judged(first, confirm=False)
        counts[0] += len(once.failed)
        if once.failed:
            counts[1] += len(judged([*first, *measured_again(first, changes, rng, between)]).failed)
    return counts[0] / runs / models, counts[1] / runs / models


@pytest.mark.slow
def test_false_alarms_of_unlucky_processes_are_not_confirmed_and_real_losses_are() -> None:
    """Processes vary more than is assumed (0.6 %): without ``--confirm`` one process deceives the gate."""
    once, confirmed = alarms(0.0, between=0.05, runs=12, processes=1)
    assert once > 0.08
    assert confirmed < once / 4
    once, confirmed = alarms(math.log(0.9), between=0.006, runs=2, processes=1)
    assert (once, confirmed) == (1.0, 1.0)


def test_only_what_fails_again_is_a_case() -> None:
    rng = np.random.default_rng(3)
    changes = [math.log(0.8)] * 4
    first = process(0, changes, rng, 0.0)
    assert len(judged(first, confirm=False).failed) == 4
    again = process(1, [math.log(0.8), 0.0, math.log(0.95)], rng, 0.0, "regression:5 %")  # the fourth is lost
    result = judged([*first, *again])
    names = [[row.name.split()[1] for row in rows] for rows in (result.failed, result.refuted, result.unsure)]
    assert names == [["model_0"], ["model_1"], ["model_2", "model_3"]]
    assert result.confirmed == "confirmed by rerun: 1 of 4"
    assert "; again 0.8" in result.cases[0]
    assert result.open[1].endswith("; not measured again")
    assert judged([*first, *again], confirm=False).cases == judged(first, confirm=False).cases


def test_a_crash_is_a_case_only_if_it_crashes_again() -> None:
    rng, (gate,) = np.random.default_rng(3), gates_asked(["parity"])
    whole = process(0, [0.0, 0.0], rng, 0.0)
    lost = [replace(r, status=Status.CRASH, samples=None) if r.env == "new" else r for r in whole]
    again = process(1, [0.0, 0.0], rng, 0.0, "parity")
    again[1] = replace(again[1], status=Status.CRASH, samples=None)
    (result,), _ = gates_of_run(RUN, (), [*lost, *again], [gate], confirm=True)
    (case,) = result.cases
    assert case.endswith("batch size 8), inductor: pass -> crash; again pass -> crash")
    assert [row.name.split()[1] for row in result.refuted] == ["model_1"]


def test_as_many_processes_follow_as_had_selected_and_their_numbers_continue() -> None:
    rng = np.random.default_rng(3)
    records = [r for n in range(3) for r in process(n, [math.log(0.8), 0.0], rng, 0.0)]
    chosen = to_confirm(RUN, records, REGRESSION)
    job, other = (record.job for record in records[:4:2])
    assert chosen == {(job.key, name, ""): "regression:5 %" for name in SIDES}
    policy, numbers = confirming(chosen), []
    while (attempt := policy(job, records)) is not None:
        assert (attempt.candidates, attempt.confirms) == (SIDES, "regression:5 %")
        numbers.append(attempt.process)
        records += process(attempt.process, [0.0], rng, 0.0, attempt.confirms)
    assert numbers == [3, 4, 5]
    assert policy(other, records) is None
    assert next_attempt(job, records) is None, "what confirms pursues no verdict"


def test_compilations_are_confirmed_by_rounds() -> None:
    job = make_job(environments=ENVIRONMENTS, candidates=SIDES)
    rounds = [
        replace(make_record(job, n), experiment="compile_runs", start="cold", round=r)
        for r in (0, 1)
        for n in SIDES
    ]
    attempt = confirming({(job.key, SIDES[1], "compile_runs"): "compile:10 %"})(job, rounds)
    assert attempt is not None
    assert (attempt.candidates, attempt.experiment, attempt.round) == (SIDES[1:], "compile_runs", 2)


def test_each_environment_is_compared_with_the_reference() -> None:
    rng, names = np.random.default_rng(3), ("old", "new", "next")
    first = process(0, [0.0], rng, 0.0)
    job = replace(first[0].job, environments=make_environments(*names))
    job = replace(job, candidates=tuple(f"inductor@{name}" for name in names))
    third = process(0, [math.log(0.8)], rng, 0.0)[1]
    records = [replace(r, job=job) for r in (*first, replace(third, candidate="inductor@next", env="next"))]
    results, _ = gates_of_run(RUN, (), records, gates_asked(["regression:5%", "graph-breaks"]), confirm=False)
    told = [(result.title.partition(":")[0], len(result.failed)) for result in results]
    assert told == [("new", 0), ("next", 1), ("results with graph breaks", 0)]
