"""release.md: what another environment changes, by severity."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Record, Status
from runner.analysis.results import EAGER_STEP, STEP
from runner.runs.compare.release import ALONE, CONFIRMED, REFUTED, Moved, moves, release_page
from runner.runs.compare.run import run_of
from tests.factories import known
from tests.unit.test_changes_paired import ROUNDS, side
from tests.unit.test_environments_compare import records

EACH = ROUNDS // 3  # rounds of a process


def measured(
    step: float,
    model: str = "m",
    *,
    eager: float = 1.0,
    several: bool = True,
    noise: float = 0.0,
    **ends: Status,
) -> list[Record]:
    """Inductor and eager of the new environment take so many times as long. ``ends``: by environment."""
    kept = []
    for record in records(model, {f"inductor@{name}": status for name, status in ends.items()}):
        own = random.Random(record.candidate)
        rounds = [math.exp(own.gauss(0, noise)) for _ in range(ROUNDS)]
        factors = (eager, step) if record.candidate == "inductor@new" else (1.0, 1.0)
        if record.samples is not None and record.candidate.startswith("inductor"):
            samples = side(0.010 * factors[0], 0.005 * factors[1], rounds, f"{model}{record.candidate}")
            reference = (0.010,) * ROUNDS  # the two sides share their rounds
            by_process = (EACH,) * 3 if several else ()
            samples = replace(samples, rounds_by_process=by_process, reference_s=reference)
            record = replace(record, samples=samples)  # noqa: PLW2901
        kept.append(record)
    return kept


def moved(kept: list[Record], processes: list[Record] | None = None) -> dict[str, Moved]:
    """By model and quantity."""
    rows = moves(run_of(Path("run"), kept), kept if processes is None else processes)
    return {f"{row.change.first.name} {row.quantity}": row for row in rows}


@pytest.mark.parametrize(
    ("kept", "word", "again"),
    [
        (measured(1.30), "loss of 20 % or more", CONFIRMED),
        (measured(1.15), "loss of 10 to 20 %", CONFIRMED),
        (measured(1.09, several=False), "loss below 10 %", ALONE),
        (measured(1.00), "same", ""),
        (measured(0.92), "gain below 10 %", CONFIRMED),
        (measured(0.88), "gain of 10 to 20 %", CONFIRMED),
        (measured(0.80), "gain of 20 % or more", CONFIRMED),
        (measured(1.05, noise=0.3), "not judged", ""),
        (measured(1.00, new=Status.CRASH), "newly failing", ALONE),
        (measured(1.00, old=Status.CRASH), "newly passing", ALONE),
        (measured(1.00, old=Status.CRASH, new=Status.TIMEOUT), "fails in both", ""),
    ],
)
def test_a_change_has_the_class_of_its_size(kept: list[Record], word: str, again: str) -> None:
    row = moved(kept)[f"m {STEP}"]
    assert (row.severity, row.again) == (word, again)


def test_a_rerun_confirms_or_does_not() -> None:
    kept = measured(1.0, new=Status.CRASH)
    fresh = [replace(record, process=1) for record in kept]
    assert moved(kept, [*kept, *fresh])[f"m {STEP}"].again == CONFIRMED
    passed = [replace(record, status=Status.PASS) for record in fresh]
    assert moved(kept, [*kept, *passed])[f"m {STEP}"].again == REFUTED


def test_eager_stands_apart_and_a_family_counts_once() -> None:
    kept = [
        *measured(1.3, "BertForMaskedLM"),
        *measured(1.3, "BertForQuestionAnswering", eager=1.3),
        *measured(1.0, "tf_resnet50"),
    ]
    page = release_page(Path("run"), kept, kept)["release.md"].decode()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    counts = {row[2]: row[3:] for row in rows if row and row[0].startswith("toys, training")}
    assert counts["inductor"][:3] + counts["inductor"][4:] == ["2", "1", "3", "1 of 2", "1 of 2", "2 of 2"]
    assert counts["eager"][:3] + counts["eager"][4:] == ["1", "2", "3", "1 of 2", r"\-", "1 of 1"]
    assert counts["inductor"][3].endswith("3/3")
    assert known(moved(kept)[f"BertForMaskedLM {STEP}"].speed(EAGER_STEP)).factor == pytest.approx(
        1, rel=0.01
    )


def test_without_environments_there_is_no_page() -> None:
    assert release_page(Path("run"), [], []) == {}
