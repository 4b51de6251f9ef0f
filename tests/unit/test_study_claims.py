"""Studies B and C without training and workers: their questions, and what C says of its source.

What B says of its source: the committed reports (``test_studies.py``).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Job, Mode, Record, Status
from runner.analysis.derive import compare
from runner.analysis.results import Estimate
from runner.cli.actions import chosen
from runner.cli.parser import parsed
from runner.cli.upstream import understood
from runner.plan.jobs import plan
from runner.store.record_file import append_record
from studies.__main__ import main
from studies.compile_modes.run import EXPECTATIONS, MODES, PARTS, expectations, flags_of
from studies.implementations.addition import generate
from studies.one_core import run as one_core
from studies.options import CompileModesOptions, OneCoreOptions
from studies.report import FAILS, HOLDS, OPEN
from tests.factories import Capture, make_job, make_record


@pytest.mark.parametrize(
    ("question", "digits", "answer"),
    [
        ((123, "+", 456), 3, "321+654=9750|"),
        ((123, "+", 999), 5, "32100+99900=221100|"),
        ((999, "-", 123), 3, "999-321=6780|"),
        ((123, "-", 999), 3, "321-999=678m|"),  # the minus is a digit and is reversed, too
        ((1, "-", 99999), 5, "10000-99999=89999m|"),
    ],
)
def test_sequences_are_the_studys(question: tuple[int, str, int], digits: int, answer: str) -> None:
    assert generate(*question, digits=digits) == answer


# -- study C: its two runs, what it says of their records, and its flags ------------------------
CALLS = (20.0, 0.02, 0.02, 0.01, 0.012, 0.011)
STORY: dict[str, dict[str, Any]] = {
    "default": {"speedup": 1.2, "compilation_s": 20.0},
    "reduce-overhead": {"speedup": 1.4, "compilation_s": 30.0},
    "max-autotune": {"speedup": 1.7, "compilation_s": 60.0},
}
FIRST = "the first call is slow, later ones are fast"


def records(device: str = "cpu", modes: Sequence[str] = tuple(STORY), **by_mode: Any) -> list[Record]:
    """A model in these modes: as the published story has it, but for what is given."""
    job = replace(make_job("resnet152", mode=Mode.INFERENCE, candidates=tuple(MODES)), device=device)
    copies = []
    for candidate, mode in ((name, mode) for name, mode in MODES.items() if mode in modes):
        facts = {"calls": CALLS, **STORY[mode], **by_mode.get(mode.replace("-", "_"), {})}
        calls = facts.pop("calls")
        copies.append(replace(make_record(job, candidate, **facts), first_calls_s=calls))
    return copies


def held(given: Sequence[Record]) -> dict[str, str]:
    return {e.expected: e.holds for e in expectations(compare(given))}


# -- the plan -------------------------------------------------------------------------
def jobs(*more: str, **options: Any) -> list[Job]:
    planned: list[Job] = []
    for part in PARTS:
        typed, _ = understood(flags_of(part, CompileModesOptions(**{"device": "cpu", **options}), more))
        planned += plan(parsed(chosen(typed), typed).config)
    return planned


@pytest.mark.parametrize(
    ("options", "more", "sizes"),
    [
        ({}, "", "Llama_2_7B small 1, resnet152 full 2, vit_base_patch16_224 full 2"),
        ({"quick": True}, "", "Llama_2_7B tiny 1, vit_base_patch16_224 tiny 2"),
        ({"device": "cuda"}, "", "Llama_2_7B full 1, resnet152 full 128, vit_base_patch16_224 full 128"),
        ({"quick": True}, "--scale=small --inductor", "Llama_2_7B small 1, vit_base_patch16_224 small 2"),
    ],
)
def test_each_model_is_a_job_with_modes_as_candidates(options: dict[str, Any], more: str, sizes: str) -> None:
    asked = jobs(*more.split(), **options)
    planned = [f"{job.case.name} {job.case.scale} {job.case.batch_size}" for job in asked]
    assert ", ".join(sorted(planned)) == sizes
    for job in asked:
        assert job.protocol.isolate
        assert job.extras.compile_runs == 1  # each mode compiles with its own empty caches
        assert job.options.freezing == (options.get("device") is None)
        modes = tuple(MODES)[::2] if options.get("quick") else tuple(MODES)
        assert job.candidates == (("inductor",) if more else modes)
    if options.get("device"):
        llama = asked[-1]
        assert (llama.case.prompt_tokens, llama.case.new_tokens, llama.dtype) == (512, 128, "bfloat16")


# -- what it says -----------------------------------------------------------------------
def test_the_published_story_where_it_comes_true_and_where_it_does_not() -> None:
    pairs = ("default to reduce-overhead", "default to max-autotune", "reduce-overhead to max-autotune")
    claims = [f"{what} from {pair}" for pair in pairs for what in ("compile time rises", "run time falls")]
    assert held(records("cuda")) == dict.fromkeys([*claims, FIRST], HOLDS)
    same = {"speedup": 1.21, "compilation_s": 21.0}
    worse = {"speedup": 0.9, "compilation_s": 10.0, "calls": (0.011, 0.02, 0.02, 0.01)}
    verdicts = held(records("cuda", reduce_overhead=same, max_autotune=worse))
    assert verdicts == {**dict.fromkeys(claims[:2], OPEN), **dict.fromkeys([*claims[2:], FIRST], FAILS)}


def test_a_swept_size_replaces_that_of_the_study() -> None:
    swept = jobs("--sweep=batch=1,4")
    points = [(job.case.point, job.case.batch_size) for job in swept]
    assert points == [(("batch=1",), 1), (("batch=4",), 4)] * 3


def test_what_failed_is_not_compared() -> None:
    crashed, wrong = ({"status": status} for status in (Status.CRASH, Status.FAIL_ACCURACY))
    verdicts = held(records(max_autotune=crashed, reduce_overhead=wrong))
    assert (verdicts.pop(FIRST), set(verdicts.values())) == (HOLDS, {OPEN})
    assert list(held(records(modes=["max-autotune"]))) == [FIRST]


def test_a_run_with_a_failure_is_reported_and_ends_with_1(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "images").mkdir()
    for record in records(reduce_overhead={"status": Status.CRASH}):
        append_record(tmp_path / "images" / "records.jsonl", record)
    assert main(["report", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "2 of 3 (model, mode) passed parity" in printed
    assert "- resnet152 float32, reduce-overhead: crash" in printed
    assert "[images/report.md](images/report.md)" in printed
    assert (tmp_path / EXPECTATIONS).read_text() in printed


@pytest.mark.parametrize(
    ("interval", "numbers", "verdict"),
    [
        ((1.4, 1.6), (1.5,), HOLDS),
        ((1.4, 1.6), (1.65,), HOLDS),  # within what published numbers differ among themselves
        ((1.4, 1.6), (1.8, 1.5), HOLDS),
        ((1.4, 1.6), (1.8,), FAILS),
        ((0.9, 1.6), (1.5,), OPEN),  # it holds 1, too
        ((0.9, 1.1), (1.02,), HOLDS),  # the published number is near 1 itself
        (None, (1.5,), OPEN),
    ],
)
def test_a_published_number_is_held_against_our_interval(
    interval: tuple[float, float] | None, numbers: tuple[float, ...], verdict: str
) -> None:
    theirs = one_core.Published(suite="", model="", family="", numbers=[("2023", n) for n in numbers])
    logs = interval and (math.log(interval[0]), math.log(interval[1]))
    assert one_core.holds(Estimate(log=0.0, interval=logs), theirs, 0.03) == verdict
    assert one_core.holds(None, theirs, 0.03) == one_core.NO_NUMBER


def test_the_study_of_one_core_measures_what_was_published_and_reports_it(tmp_path: Path) -> None:
    models = one_core.published()
    assert (len(models), round(one_core.deviation(models.values()), 4)) == (64, 0.0268)
    words = one_core.flags_of(OneCoreOptions(), ["--only=lcnet_050"])
    assert words.count("--only=lcnet_050") == 1
    assert not any("fbnetc" in word for word in words)
    job = make_job(name="lcnet_050", candidates=one_core.COMPILERS)
    for candidate in one_core.COMPILERS:
        append_record(tmp_path / "records.jsonl", make_record(job, candidate))
    assert one_core.is_of(tmp_path)
    text = one_core.render(tmp_path).text
    assert "1 of 64 models with a published number have ours" in text
    assert "| lcnet_050 | image, convolution | 1.44 (2023) |" in " ".join(text.split())
    assert "conditions" not in text
    (tmp_path / "jemalloc").mkdir()
    append_record(tmp_path / "jemalloc" / "records.jsonl", make_record(job, one_core.PLAIN))
    text = " ".join(one_core.render(tmp_path).text.split())
    assert "| lcnet_050 | 1.44 (2023) | inductor | jemalloc |" in text
