"""The statistics of compile times, and break-even."""

import math
import random
import re
from dataclasses import replace
from statistics import median

import pytest

from harness.schema import COLD, Record
from runner.analysis.derive import summarize
from runner.analysis.estimate import Verdict
from runner.analysis.results import COMPILATIONS
from runner.analysis.verdicts.compiling import compilations_of
from runner.reports.markdown import render
from runner.reports.parts.ratios import COMPILED
from tests.factories import compiled, compiled_cold, known, make_job, make_record, sampled
from torchduet.frames import frames_of


def cases(record: Record, title: str) -> list[str]:
    return [case for w in summarize([record]).warnings if w.title == title for case in w.cases]


def test_a_median_is_open_where_no_model_pays() -> None:
    """Measured gains within the noise have break-even steps, and are no gains."""
    records = [make_record(make_job(name), speedup=1.02, jitter=0.1) for name in "cdf"]
    (group,) = summarize(records).groups
    assert (group.break_even.pays, group.break_even.never) == (0, 0)
    assert math.isfinite(known(group.break_even.median))
    assert group.break_even.open
    assert "open; 0/3 pay; 0 never" in render(summarize(records))["report.md"].decode()


# -- which side compiles faster --------------------------------------------------------------------
def runs(
    name: str, factors: dict[str, float], rng: random.Random, *, rounds: int = 5, noise: float = 0.03
) -> list[Record]:
    """Candidates that compile for 10 s times a factor; a round's wobble of 20 % is common to them."""
    job = make_job(name, candidates=tuple(factors))
    wobble = [math.exp(rng.gauss(0.0, 0.2)) for _ in range(rounds)]
    return [
        compiled_cold(make_record(job, candidate), 10 * factor, rng, wobble, noise)
        for candidate, factor in factors.items()
    ]


def verdicts(factor: float, *, seed: int) -> list[Verdict | None]:
    """Of 20 comparisons, each a run of its own: five cold compilations a side."""
    rng = random.Random(seed)
    pair_verdicts = []
    for number in range(20):
        (pair,) = summarize(runs(f"m{number}", {"a": 1.0, "b": factor}, rng)).of(COMPILATIONS)
        assert (pair.first.name, pair.second.name) == ("a", "b")
        pair_verdicts.append(pair.verdict)
    return pair_verdicts


@pytest.mark.parametrize("seed", sampled(3, range(5)))
def test_the_same_compiler_twice_differs_at_most_once_in_twenty_and_15_percent_in_19(seed: int) -> None:
    assert sum(v in (Verdict.FASTER, Verdict.SLOWER) for v in verdicts(1.0, seed=seed)) <= 1
    assert verdicts(1.15, seed=seed).count(Verdict.FASTER) >= 19


AB = {"a": 1.0, "b": 1.15}


def test_noisy_compilations_say_how_many_close_the_verdict() -> None:
    """A scatter of 13 % within a round: five of a side tell nothing, the number that they name does."""
    rng = random.Random(3)
    few = [
        summarize(runs("m", {"a": 1.0, "b": 1.15}, rng, noise=0.13)).of(COMPILATIONS)[0] for _ in range(30)
    ]
    named = [pair.open.pairs or 50 for pair in few if pair.open]
    enough = round(median(named))
    assert len(named) >= 20
    assert 10 <= enough <= 50
    many = [summarize(runs("m", AB, rng, rounds=enough, noise=0.13)).of(COMPILATIONS)[0] for _ in range(30)]
    assert sum(pair.verdict is Verdict.FASTER for pair in many) >= 15
    assert all(pair.open is None for pair in many if pair.verdict is Verdict.FASTER)


def test_a_compilation_that_took_no_longer_than_it_waited_is_told_and_not_counted() -> None:
    runs = (compiled(COLD, 90.0, 0), compiled(COLD, 90.0, 1), compiled(COLD, 0.3, 2, compile_waiting_s=0.4))
    record = replace(make_record(make_job()), compilations=runs)
    assert compilations_of(record) == [90.0, 90.0]
    (told,) = cases(record, "Other work while compiling")
    assert told.endswith("; less this waiting, no time is left of 1 compilation (not counted)")
    assert cases(replace(record, compilations=runs[:2]), "Other work while compiling") == []


def test_the_tables_have_the_phases_and_who_is_faster() -> None:
    records = runs("model", {"a": 1.0, "b": 1.3}, random.Random(1))
    (table,), (pairs,) = (view.tables(summarize(records)) for view in COMPILED)
    assert table.header[4] == "seconds [95 % interval]"
    assert [row[2:4] for row in table.rows] == [("a", "cold"), ("b", "cold")]
    assert re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", table.rows[0][4])
    assert pairs.rows[0][2] == "a over b, cold"


def test_a_frame_has_a_row_for_each_compilation() -> None:
    table = frames_of(runs("model", {"a": 1.0}, random.Random(1))).compilations
    assert (list(table["start"]), list(table["round"])) == (["cold"] * 5, [0, 1, 2, 3, 4])
    assert table["compilation_latency_s"].gt(0).all()
