"""The verdict on training runs, of curves whose distances are known."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.codec import from_json, to_json
from harness.recorded.numerics import AGAIN, NOISY, SEEDS
from harness.schema import Course, Record, Trajectory
from runner.analysis.derive import summarize
from runner.analysis.verdicts.trajectory import FACTOR, Stays, judged
from runner.reports import lines_plot, markdown
from tests.factories import make_job, make_record

STEPS, PLACES = 100, tuple(range(5, 101, 5))
SIZE = 1e-6  # of the noise, relative to a loss of 2 and a gradient norm of 4


def course(name: str, size: float | Sequence[float]) -> Course:
    """A run at this distance from eager, or at those of its windows."""
    sizes = [size] * 10 if isinstance(size, float) else size
    each = [sizes[step // 10] for step in range(STEPS)]
    return Course(
        name=name,
        loss=tuple(2.0 * apart for apart in each),
        gradient_norm=tuple(4.0 * apart for apart in each),
        parameters=tuple(each[place - 1] for place in PLACES),
    )


def trajectory(
    own: float | Sequence[float] = SIZE,
    *repeats: float | Sequence[float],
    noise: float | Sequence[float] = SIZE,
    again: float = 0.0,
    resolution: float = 1e-7,
) -> Trajectory:
    eager = Course(name="eager", loss=(2.0,) * STEPS, gradient_norm=(4.0,) * STEPS, parameters=(1.0,) * 20)
    others = (course(AGAIN, again), *(course(name, noise) for name in NOISY))
    return Trajectory(
        steps=STEPS,
        optimizer="adamw",
        learning_rate=1e-3,
        data="batches",
        places=PLACES,
        resolution=resolution,
        eager=eager,
        courses=(*others, *(course(name, 0.1) for name in SEEDS)),
        candidate=course("inductor", own),
        repeats=tuple(course("inductor", size) for size in repeats),
    )


LATE = [SIZE] * 4 + [1e-3] * 6  # outside from step 41 on
GROWING = [SIZE * 10**window for window in range(10)]  # 1 % in the fifth window


@pytest.mark.parametrize(
    ("known", "stays", "step", "horizon"),
    [
        (trajectory(0.0), Stays.INSIDE, None, 100),
        (trajectory(0.99 * FACTOR * SIZE), Stays.INSIDE, None, 100),
        (trajectory(1.01 * FACTOR * SIZE), Stays.OUTSIDE, 1, 10),
        (trajectory(LATE), Stays.OUTSIDE, 41, 50),
        (trajectory(LATE, LATE, LATE), Stays.OUTSIDE, 41, 50),
        (trajectory(LATE, LATE, SIZE), Stays.INSIDE, None, 100),  # it was a kink
        (trajectory(GROWING, noise=GROWING), Stays.CHAOS, None, 50),
        (trajectory(1.0, noise=GROWING), Stays.OUTSIDE, 1, 10),
        (trajectory(LATE, noise=[1.0] * 10), Stays.CHAOS, None, 0),
        (trajectory(again=1e-3), Stays.UNSTABLE, None, 0),
        (trajectory(math.nan), Stays.OUTSIDE, 1, 10),
        (trajectory(1e-3, noise=0.0, resolution=8e-3), Stays.INSIDE, None, 100),  # one unit of bfloat16
    ],
)
def test_where_a_run_stays(known: Trajectory, stays: Stays, step: int | None, horizon: int) -> None:
    verdict = judged(known)
    assert (verdict.stays, verdict.step, verdict.horizon) == (stays, step, horizon)


@pytest.mark.parametrize("quantity", ["loss", "gradient_norm", "parameters"])
def test_each_quantity_counts(quantity: str) -> None:
    known = trajectory()
    own = replace(known.candidate, **{quantity: getattr(course("", 1e-3), quantity)})
    verdict = judged(replace(known, candidate=own))
    assert (verdict.stays, verdict.quantity) == (Stays.OUTSIDE, quantity.replace("_", " "))


def test_records_frames_and_reports_have_it() -> None:
    extra = replace(course("inductor", LATE), extra_gradients=("spare.weight", "spare.bias"))
    known = replace(trajectory(), candidate=extra)
    record = replace(make_record(make_job("GPT")), trajectory=known)
    assert from_json(Record, to_json(record)) == record
    summary = summarize([record, make_record(make_job("MLP"))])
    (text,) = markdown.render(summary).values()
    assert b"outside from step 41 (loss); spare.weight has a gradient, which eager lacks" in text
    assert b"Training runs: 100 steps, adamw at a rate of 0.001, other batches in each step" in text
    row = summary.comparisons[0]
    assert row.value("trajectory_ratio") == pytest.approx(1e3)
    assert row.value("trajectory_seed_loss") == pytest.approx(0.1)
    assert any(name.endswith("_trajectories.png") for name in lines_plot.render(summary))
