"""``--sweep``: its points as jobs, the curves over them, and the crossovers with their intervals."""

import math
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Job, Mode, Record, Status
from runner.analysis.derive import summarize
from runner.analysis.sweep import crossovers, median_ms
from runner.cli.commands import job_command
from runner.errors import UsageError
from runner.plan.jobs import plan
from runner.plan.sweep import AXIS, points
from runner.reports import html, lines_plot
from runner.reports.closing import closing_lines
from runner.reports.pages.rows import title
from tests.command_line import config_of_words
from tests.factories import known, make_job, make_record, sampled

WORDS = ("--inference", "--devices=cpu", "--compilers=inductor")
BERT = ("--suites=huggingface", "--only=BertForMaskedLM", "--sweep=sequence=16,32")
BATCHES = (1, 2, 4, 8, 16, 32)


def jobs_of(*words: str) -> tuple[Job, ...]:
    return plan(config_of_words([*WORDS, *words]))


# -- points ------------------------------------------------------------------------
def test_values_are_listed_or_spanned() -> None:
    for text, values in {
        "batch=1,2,2,8": (1, 2, 8),
        "sequence=128:1000:*2": (128, 256, 512),
        "threads=1:5:+2": (1, 3, 5),
    }.items():
        axis = AXIS.read(text)
        assert axis == (text.partition("=")[0], values)
        assert AXIS.read(AXIS.text(axis)) == axis


def test_each_point_is_a_job_whose_command_makes_it_again() -> None:
    words = ("--only=MLP_addition", "--sweep=batch=2,64", "--sweep=threads=1,2")
    jobs = jobs_of(*words)
    assert [(job.case.batch_size, job.protocol.threads) for job in jobs] == [(2, 1), (2, 2), (64, 1), (64, 2)]
    assert len({job.key for job in jobs}) == 4
    assert [*points(make_job(), ())] == [make_job()]
    assert jobs[0].case.point == ("batch=2", "threads=1")
    assert all(job.protocol.fixed_batch for job in jobs)  # half of a batch is another point
    for job in (*jobs, *jobs_of(*BERT)):
        _, script, *command = shlex.split(job_command(job))
        assert plan(config_of_words([f"--suites={Path(script).stem}", *command])) == (job,)


def test_a_sequence_is_that_of_the_suite_the_prompt_or_the_own_function() -> None:
    assert [job.case.sequence for job in jobs_of(*BERT)] == [16, 32]
    assert [job.case.sequence for job in jobs_of(*BERT[:2])] == [64]
    own, text = make_job(suite="mine.py:make"), make_job(mode=Mode.GENERATE, prompt_tokens=8)
    assert [job.case.sequence for job in points(own, [("sequence", (5,))])] == [5]
    assert [job.case.prompt_tokens for job in points(text, [("sequence", (5,))])] == [5]
    with pytest.raises(UsageError, match=r"^--sweep: MLP_addition of tiny_gpt has no sequence length"):
        jobs_of("--only=MLP_addition", "--sweep=sequence=16,32")


# -- crossovers --------------------------------------------------------------------
def band(crossing: float, half: float, slope: float = 0.3) -> list[tuple[float, float, float, float]]:
    """The log speedup grows with the logarithm of the batch."""
    logs = [slope * math.log(batch / crossing) for batch in BATCHES]
    return [(batch, log, log - half, log + half) for batch, log in zip(BATCHES, logs, strict=True)]


def test_a_planted_crossover_is_found_between_the_ends_of_the_band() -> None:
    (crossing,) = crossovers(band(6.0, 0.3 * math.log(1.5)))
    assert (crossing.at, crossing.low, crossing.high) == pytest.approx((6.0, 4.0, 9.0))
    assert crossing.faster
    (falling,) = crossovers([(at, -y, -high, -low) for at, y, low, high in band(6.0, 0.1)])
    assert falling.at == pytest.approx(6.0)
    assert not falling.faster


def test_an_end_beyond_the_points_is_open_and_two_open_ends_are_no_crossover() -> None:
    (early,) = crossovers(band(1.2, 0.3 * math.log(1.5)))
    assert early.low is None
    assert early.high == pytest.approx(1.8)
    (late,) = crossovers(band(28.0, 0.3 * math.log(1.5)))
    assert late.low == pytest.approx(28 / 1.5)
    assert late.high is None
    assert ([*crossovers(band(6.0, 5.0))], [*crossovers(band(0.5, 0.01))], [*crossovers([])]) == ([], [], [])


def test_noise_about_one_is_a_single_crossover_and_a_dip_is_two() -> None:
    logs = (-0.5, 0.01, -0.01, 0.01, 0.5, 0.6)
    points = [(at, y, y - 0.05, y + 0.05) for at, y in zip(BATCHES, logs, strict=True)]
    (crossing,) = crossovers(points)
    assert (1 < known(crossing.low) < 2, 8 < known(crossing.high) < 16, crossing.faster) == (True, True, True)
    dip = [(at, y, y - 0.05, y + 0.05) for at, y in zip(BATCHES, (1, 1, -1, -1, 1, 1), strict=True)]
    assert [crossing.faster for crossing in crossovers(dip)] == [False, True]


@pytest.mark.parametrize("crossing", sampled(2, (3.0, 6.0, 8.0)))
def test_the_interval_covers_the_true_crossing(crossing: float) -> None:
    """At a point in 95 %, between points in up to 99.4 %, because both neighbors are wrong independently."""
    rng, error, covered, times = random.Random(1), 0.05, 0, 1500
    true = band(crossing, 0.0, 0.2)
    for _ in range(times):
        seen = [(at, y + rng.gauss(0, error)) for at, y, *_ in true]
        crossings = crossovers([(at, y, y - 1.96 * error, y + 1.96 * error) for at, y in seen])
        covered += any((e.low or 0.0) <= crossing <= (e.high or math.inf) for e in crossings)
    assert 0.935 < covered / times < 0.998


def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test() -> None:
    ms = median_ms([i / 1e3 for i in range(1, 21)])
    assert (ms.factor, ms.low, ms.high) == pytest.approx((10.5, 6.0, 15.0))  # P(X <= 5) = 0.0207
    few = median_ms([0.001, 0.002, 0.003, 0.004, 0.005, 0.006])
    assert (few.low, few.high) == pytest.approx((1.0, 6.0))


# -- reports -----------------------------------------------------------------------
def swept(crossing: float = 6.0, candidates: tuple[str, ...] = ("inductor",)) -> list[Record]:
    """A model over the batch, whose candidates are faster above a batch."""
    jobs = points(make_job("model", candidates=candidates), [("batch", BATCHES)])
    return [
        make_record(job, candidate, speedup=(known(job.case.batch_size) / crossing) ** 0.3)
        for job in jobs
        for candidate in candidates
    ]


@pytest.mark.slow
def test_the_curves_are_files_and_a_picture_of_the_page() -> None:
    summary = summarize(swept())
    assert sorted(lines_plot.render(summary)) == ["toys_float32_curves.png", "toys_float32_curves.svg"]
    assert html.render(summary)["report.html"].count(b"data:image/svg+xml") == 1


def panels_of(records: list[Record]) -> list[Any]:
    return lines_plot.draw([row for _, row in lines_plot.sweeps(summarize(records))]).axes


def test_the_last_panel_has_the_step_over_its_peak_memory() -> None:
    records = []
    for record in swept():
        size = 10**9 * known(record.job.case.batch_size)
        peaks = {"baseline_peak_memory_bytes": 3 * size, "candidate_peak_memory_bytes": 2 * size}
        records.append(replace(record, metrics={**record.metrics, **peaks}))
    panel = panels_of(records)[-1]
    eager, inductor = panel.get_lines()
    assert [*eager.get_xdata()] == pytest.approx([3 * size for size in BATCHES])
    assert [*inductor.get_xdata()] == pytest.approx([2 * size for size in BATCHES])
    steps = [median_ms(known(record.samples).candidate_s) for record in records]
    assert [*inductor.get_ydata()] == pytest.approx([known(step).factor for step in steps])
    assert panel.get_xlabel() == "peak memory (GB) (log scale)"


def test_eager_has_all_points_also_where_the_first_candidate_failed() -> None:
    records = swept(candidates=("torchscript", "inductor"))
    records = [
        make_record(record.job, record.candidate, status=Status.FAIL_ACCURACY) if place in (0, 2) else record
        for place, record in enumerate(records)
    ]
    step = panels_of(records)[1]
    assert (step.get_ylabel(), [*step.get_lines()[0].get_xdata()]) == ("step (ms)", [*BATCHES])


def test_points_are_no_models_to_count() -> None:
    assert title(summarize(swept())) == "model, toys"
    jobs = [job for n in range(15) for job in points(make_job(f"m{n}"), [("batch", BATCHES)])]
    (line,) = closing_lines(summarize([make_record(job) for job in jobs]))
    assert "inductor: 90 points: " in line


def test_points_that_are_on_no_curve() -> None:
    records = swept()
    damaged = replace(records[0].job.case, point=("batch=0", "x", "batch=many", f"batch={'9' * 5000}"))
    records[0] = replace(records[0], job=replace(records[0].job, case=damaged))
    assert [*summarize(records).curves[0].points] == [*BATCHES[1:]]
    records = [replace(record, samples=None) for record in swept()]
    summary = summarize(records)
    assert (summary.curves, lines_plot.render(summary)) == ((), {})
    assert "parity pass" in closing_lines(summary)[0]
    records = swept()[:1]
    assert summarize(records).curves == ()
    assert closing_lines(summarize(records))[0].startswith(
        "model (batch=1) training float32, inductor: slower"
    )
