"""Study C without workers: its plan, its outcomes, what it says of them, and its flags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.codec import to_json
from harness.schema import Job, Mode, Record, Status
from runner.engine.executors import Cases, Ended, Events, Started, Stop
from runner.engine.executors import Work as Wanted
from runner.errors import UsageError
from studies.cli import build_parser, main, options_of
from studies.compile_modes.options import MODES, CompileModesOptions
from studies.compile_modes.report import failures, render
from studies.compile_modes.results import (
    ALIKE,
    APART,
    between,
    expectations,
    missing,
    outcome_line,
    outcomes,
    pays_after,
)
from studies.compile_modes.run import measure, planned
from studies.expectations import FAILS, HOLDS, OPEN
from studies.journal import Journal, Line, read_lines
from tests.factories import ENVIRONMENT, make_job, make_record

BACKENDS = tuple(MODES.values())


def options(*flags: str) -> CompileModesOptions:
    given = build_parser().parse_args(["compile-modes", "--device=cpu", *flags])
    made: CompileModesOptions = options_of(given)
    return made


def vision(name: str = "resnet152") -> Job:
    return make_job(name, mode=Mode.INFERENCE, candidates=BACKENDS)


def record(mode: str, job: Job | None = None, calls: Sequence[float] = (), **facts: Any) -> Record:
    """A synthetic record of that mode; ``calls`` are its first ones."""
    made = make_record(job or vision(), MODES[mode], metrics={"kernels_autotuned": 3}, **facts)
    return replace(made, first_calls_s=tuple(calls))


def study(records: Sequence[Record], *flags: str) -> list[Line]:
    """The lines of a run that has these records."""
    given = options(*flags)
    facts = {"models": given.models, "modes": given.modes, "dtypes": given.dtypes}
    rest = {"device": "cpu", "freezing": given.freezing, "quick": given.quick}
    first = {"kind": "study", "study": "compile-modes", "options": {**facts, **rest}}
    return [
        {**first, "environment": dict(ENVIRONMENT)},
        *({"kind": "outcome", "record": to_json(one)} for one in records),
    ]


CALLS = (20.0, 0.02, 0.02, 0.01, 0.012, 0.011)
RESNET = ("--models=resnet152",)


def resnet(device: str = "cpu", **by_mode: dict[str, Any]) -> list[Line]:
    """A run of ResNet-152 in all modes: as the published story has it, but for what is given."""
    job = replace(vision(), device=device)
    story: dict[str, dict[str, Any]] = {
        "default": {"speedup": 1.2, "compilation_s": 20.0},
        "reduce-overhead": {"speedup": 1.4, "compilation_s": 30.0},
        "max-autotune": {"speedup": 1.7, "compilation_s": 60.0},
    }
    records = [
        record(mode, job, **{"calls": CALLS, **facts, **by_mode.get(mode.replace("-", "_"), {})})
        for mode, facts in story.items()
    ]
    return study(records, *RESNET)


# -- the plan -------------------------------------------------------------------------


def test_each_model_is_a_job_with_the_modes_as_candidates() -> None:
    jobs = planned(options("--threads=1"))
    assert [job.case.name for job in jobs] == ["resnet152", "vit_base_patch16_224", "Llama_2_7B"]
    assert {job.candidates for job in jobs} == {BACKENDS}
    assert [(job.case.scale, job.case.batch_size) for job in jobs] == [("full", 2), ("full", 2), ("small", 1)]
    assert [job.case.mode for job in jobs] == [Mode.INFERENCE, Mode.INFERENCE, Mode.GENERATE]
    for job in jobs:
        assert job.protocol.isolate  # with extras.cold_start: each mode compiles with its own empty cache
        assert job.extras.cold_start
        assert job.options.freezing
        assert job.protocol.threads == 1


def test_quick_is_tiny_and_short() -> None:
    jobs = planned(options("--quick"))
    assert [job.case.name for job in jobs] == ["vit_base_patch16_224", "Llama_2_7B"]
    assert {job.candidates for job in jobs} == {("inductor", "inductor_max_autotune")}
    assert {(job.case.scale, job.protocol.repeat) for job in jobs} == {("tiny", 6)}
    asked = planned(options("--quick", "--models=resnet152", "--modes=default", "--rounds=9"))
    assert [(job.case.name, job.candidates, job.protocol.repeat) for job in asked] == [
        ("resnet152", ("inductor",), 9)
    ]


def test_on_a_gpu_models_are_whole() -> None:
    given = replace(options("--no-freezing"), device="cuda", dtypes=("bfloat16",))
    jobs = planned(given)
    assert [(job.case.scale, job.case.batch_size) for job in jobs] == [
        ("full", 128),
        ("full", 128),
        ("full", 1),
    ]
    assert (jobs[2].case.prompt_tokens, jobs[2].case.new_tokens) == (512, 128)
    assert {job.dtype for job in jobs} == {"bfloat16"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--modes=fastest"], "--modes: there is no mode called 'fastest'"),
        (["--models=resnet50"], "--models: there is no model called 'resnet50'; did you mean resnet152?"),
        (["--models="], "--models: '' is empty; give at least one value"),
        (["--dtypes=float8"], "--dtypes: there is no precision called 'float8'"),
        (["--dtypes=tf32"], "--dtypes: tf32 exists on CUDA only"),
        (["--scale=huge"], "--scale: there is no scale called 'huge'"),
        (["--rounds=0"], "--rounds: 0 is too small"),
        (["--new-tokens=1"], "--new-tokens: the first token belongs to prefill"),
        (["--models=resnet152", "--prompt-tokens=8"], "--prompt-tokens: none of these models generates text"),
        (["--data-dir=."], "unrecognized arguments: --data-dir"),
        (["--device=tpu"], "--device: there is no device called 'tpu'"),
    ],
)
def test_bad_flags_end_in_one_sentence_and_write_nothing(
    flags: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["compile-modes", "--device=cpu", f"--output-dir={folder}", *flags]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {says}")
    assert len(printed.err.splitlines()) == 1
    assert not folder.exists()


# -- measuring ------------------------------------------------------------------------


class Pretended:
    """An executor whose modes all pass, but for one."""

    def run(self, work: Sequence[Wanted], cases: Cases, stop: Stop) -> Events:
        for one in work:
            yield Started(job=one.job)
            assert cases.open_case(one.job).is_file()
            for name in one.candidates:
                broke = name == "inductor_reduce_overhead"
                made = make_record(one.job, name, status=Status.CRASH if broke else Status.PASS)
                caches = f"{cases.open_case(one.job).parent}/caches"
                yield replace(made, environment={**made.environment, "env.CACHE": caches, "cpu_count": 2})
            yield Ended(job=one.job)


def test_every_mode_is_one_outcome_also_when_it_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(tmp_path / "run", "compile-modes")
    given = options(*RESNET)
    first, *_ = study([], *RESNET)
    journal.write(**first)
    measure(planned(given), journal, Pretended())
    journal.close()
    lines = read_lines(tmp_path / "run")
    found = outcomes(lines)
    assert [(o.mode, o.record.status) for o in found] == [
        ("default", Status.PASS),
        ("reduce-overhead", Status.CRASH),
        ("max-autotune", Status.PASS),
    ]
    assert [line["mode"] for line in lines[1:]] == list(MODES)
    assert str(found[0].record.environment["env.CACHE"]).startswith("cases/")
    printed = capsys.readouterr().out
    assert "ResNet-152 float32: scale full, batch 2 of the suite's 128" in printed
    assert "reduce-overhead: crash" in printed

    assert main(["report", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().out
    assert "2 of 3 (model, mode) passed parity" in printed
    assert "failed: ResNet-152 float32, reduce-overhead: crash" in printed
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {"report.md", "compile_against_run.png", "compile_against_run.svg"}


def test_a_killed_run_says_what_it_lacks(tmp_path: Path) -> None:
    lines = study([record("default")], "--models=resnet152", "--modes=default,max-autotune")
    assert missing(lines[0], outcomes(lines)) == ["ResNet-152 float32, max-autotune"]
    assert failures(lines) == ["ResNet-152 float32, max-autotune: there is no outcome"]
    text = render(lines)["report.md"].decode()
    assert "1 of 2 (model, mode) passed parity" in text
    assert "- ResNet-152 float32, max-autotune: the run ended before" in text
    nothing = render(study([], *RESNET))
    assert set(nothing) == {"report.md"}


def test_damaged_records_end_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path / "run", "compile-modes")
    journal.write(**study([], *RESNET)[0])
    journal.write("outcome", record={"job": 3})
    journal.close()
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "are damaged" in capsys.readouterr().err


# -- what it says -----------------------------------------------------------------------


def held(lines: Sequence[Line]) -> dict[str, str]:
    return {e.expected: e.holds for e in expectations(outcomes(lines))}


def test_the_published_story_where_it_comes_true() -> None:
    assert held(resnet("cuda")) == {
        "compile time rises from default to reduce-overhead": HOLDS,
        "run time falls from default to reduce-overhead": HOLDS,
        "compile time rises from default to max-autotune": HOLDS,
        "run time falls from default to max-autotune": HOLDS,
        "compile time rises from reduce-overhead to max-autotune": HOLDS,
        "run time falls from reduce-overhead to max-autotune": HOLDS,
        "the first call is slow, later ones are fast": HOLDS,
    }


def test_the_story_where_it_does_not() -> None:
    same = {"speedup": 1.21, "compilation_s": 21.0}
    worse = {"speedup": 0.9, "compilation_s": 10.0, "calls": (0.011, 0.02, 0.02, 0.01)}
    assert held(resnet("cuda", reduce_overhead=same, max_autotune=worse)) == {
        "compile time rises from default to reduce-overhead": OPEN,
        "run time falls from default to reduce-overhead": OPEN,
        "compile time rises from default to max-autotune": FAILS,
        "run time falls from default to max-autotune": FAILS,
        "compile time rises from reduce-overhead to max-autotune": FAILS,
        "run time falls from reduce-overhead to max-autotune": FAILS,
        "the first call is slow, later ones are fast": FAILS,
    }


@pytest.mark.parametrize(
    ("speedup", "compilation_s", "alike", "rises", "rises_again"),
    [
        (1.21, 21.0, ALIKE, HOLDS, HOLDS),
        (1.4, 21.0, APART, HOLDS, HOLDS),
        (1.2, 70.0, ALIKE, OPEN, OPEN),
        (1.2, 5.0, ALIKE, OPEN, HOLDS),
    ],
)
def test_on_a_cpu_reduce_overhead_says_how_noisy_the_machine_is(
    speedup: float, compilation_s: float, alike: str, rises: str, rises_again: str
) -> None:
    found = held(resnet(reduce_overhead={"speedup": speedup, "compilation_s": compilation_s}))
    assert found == {
        "reduce-overhead is default, without CUDA graphs": alike,
        "compile time rises from default to max-autotune": rises,  # to three times that of default
        "run time falls from default to max-autotune": HOLDS,
        "compile time rises from reduce-overhead to max-autotune": rises_again,
        "run time falls from reduce-overhead to max-autotune": HOLDS,
        "the first call is slow, later ones are fast": HOLDS,
    }


def test_the_fastest_mode_is_compared_with_both_others() -> None:
    """It compiles longer than reduce-overhead, but does not run faster."""
    found = held(resnet("cuda", reduce_overhead={"speedup": 1.7, "compilation_s": 30.0}))
    assert found["compile time rises from reduce-overhead to max-autotune"] == HOLDS
    assert found["run time falls from reduce-overhead to max-autotune"] == OPEN
    assert found["run time falls from default to max-autotune"] == HOLDS


def test_what_failed_is_not_compared() -> None:
    lines = resnet(max_autotune={"status": Status.CRASH}, reduce_overhead={"status": Status.FAIL_ACCURACY})
    found = held(lines)
    assert found["run time falls from default to max-autotune"] == OPEN
    assert found["compile time rises from default to max-autotune"] == OPEN
    assert found["reduce-overhead is default, without CUDA graphs"] == OPEN
    assert failures(lines)[0].startswith("ResNet-152 float32, reduce-overhead: fail_accuracy")
    without = study([record("max-autotune", calls=CALLS)], *RESNET, "--modes=max-autotune")
    assert list(held(without)) == ["the first call is slow, later ones are fast"]


def test_modes_are_compared_with_what_processes_differ_by() -> None:
    first, _, third = outcomes(resnet())
    change = between(first, third)
    assert change is not None
    assert change.factor == pytest.approx(1.7 / 1.2, rel=0.01)
    tau = [outcome.comparison.assumed_sd for outcome in (first, third)]
    assert change.half_width is not None
    assert change.half_width > 1.96 * math.hypot(*(sd for sd in tau if sd is not None)) > 0


def test_compiling_pays_or_never_does() -> None:
    lines = resnet(reduce_overhead={"speedup": 1.0}, max_autotune={"speedup": 0.8})
    first, second, third = (pays_after(o.comparison) for o in outcomes(lines))
    assert first is not None
    assert 5_000 < first < 20_000  # 20 s, at 10 ms less a sixth
    assert (second, third) == (math.inf, math.inf)
    failed, *_ = outcomes(study([record("default", status=Status.TIMEOUT)], *RESNET))
    assert pays_after(failed.comparison) is None


def test_tables_have_each_mode_with_its_numbers() -> None:
    text = render(resnet(reduce_overhead={"speedup": 1.0}))["report.md"].decode()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    steady = {row[1]: row for row in rows if row[0] == "ResNet-152 float32" and len(row) == 10}
    assert list(steady) == list(MODES)
    assert steady["max-autotune"][2] == "60.0"
    assert steady["max-autotune"][6] == "faster"
    assert steady["reduce-overhead"][6:8] == ["inconclusive", "never"]  # processes differ by 2 %
    assert steady["default"][8:] == ["3", "20"]
    calls = {row[1]: row for row in rows if row[0] == "ResNet-152 float32" and len(row) == 8}
    assert calls["default"][2:7] == ["20.0", "0.020", "0.020", "0.011", "3"]
    assert "weights are constants" in text
    assert "no CUDA graphs" in text
    assert "## Generation" not in text


def test_generation_has_prefill_and_decode_apart() -> None:
    job = make_job("Llama_2_7B", mode=Mode.GENERATE, batch_size=1, prompt_tokens=32, new_tokens=11)
    made = record("default", replace(job, candidates=BACKENDS), speedup=2.0, jitter=0.0)
    assert made.samples is not None
    prefill = tuple(seconds / 4 for seconds in made.samples.baseline_s)
    samples = replace(made.samples, baseline_prefill_s=prefill, candidate_prefill_s=prefill)
    lines = study([replace(made, samples=samples)], "--models=Llama_2_7B", "--modes=default")
    text = render(lines)["report.md"].decode()
    rows = [line for line in text.split("## Generation")[1].splitlines() if line.startswith("| Llama")]
    cells = [cell.strip() for cell in rows[0].split("|")[1:-1]]
    assert cells[1] == "default"
    assert cells[2] == cells[3]
    eager, compiled = float(cells[5]), float(cells[6])
    assert eager / compiled == pytest.approx(3.0, rel=0.02)  # of 10 ms, 2.5 are prefill; of 5, too
    assert float(cells[8].replace(",", "")) == pytest.approx(1000 / eager, rel=0.02)
    assert "32, 11" in text


def test_a_quick_run_is_not_judged() -> None:
    lines = study([record("default", calls=CALLS)], "--quick", *RESNET)
    text = render(lines)["report.md"].decode()
    assert "not judged" in text
    assert "figures mean nothing" in text


def test_the_line_of_an_outcome() -> None:
    line = outcome_line(record("max-autotune", speedup=1.5, compilation_s=17.61))
    assert line.startswith("max-autotune: pass, compiled in 17.6 s, ")
    assert line.endswith("after 20 rounds")
    assert outcome_line(record("default", status=Status.CRASH)).startswith("default: crash")


def test_pictures_are_the_same_each_time() -> None:
    first, again = render(resnet()), render(resnet())
    assert first == again
    assert {"first_calls.png", "first_calls.svg", "compile_against_run.png"} <= set(first)
    assert "max-autotune" in first["first_calls.svg"].decode()


def test_an_unknown_study_option_is_refused_before_anything_is_planned() -> None:
    with pytest.raises(UsageError, match="see python -m studies --help"):
        options("--steps=3")
