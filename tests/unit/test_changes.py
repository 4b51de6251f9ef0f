"""Run against run: like with like, what changed, and what may not be left unsaid."""

import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.codec import from_json, to_json
from harness.schema import STOPPED, Job, Mode, Protocol, Record, Status
from runner.analysis.results import SPEEDUP, Summary
from runner.analysis.verdicts import Verdict
from runner.errors import UsageError
from runner.names import suite_labels
from runner.reports.markdown import LIMIT
from runner.runs.compare.changes import FIXED, Change, RunChanges, changes_between
from runner.runs.compare.gates import GateResult, gate_result, gate_results, gates_asked
from runner.runs.compare.run import Run, load, results_of
from runner.runs.compare.views import breaks, head, print_changes, render_json, render_markdown
from runner.store.record_file import append_record
from tests.factories import HOSTILE_NAMES, HOSTILE_SUITE, control, make_job, make_record

MODELS = tuple(f"model_{number}" for number in range(6))


def write(folder: Path, records: Sequence[Record], **about: Any) -> Path:
    """A run's folder. ``about``: what its run.json says."""
    folder.mkdir(parents=True)
    for record in records:
        append_record(folder / "records.jsonl", record)
    if about:
        (folder / "run.json").write_text(json.dumps({"command": [], "jobs": [], **about}))
    (folder / "records.jsonl").touch()
    return folder


def measured(speedups: dict[str, float], **changes: Any) -> list[Record]:
    """inductor and the A/A control on some models."""
    records = []
    for name, speedup in speedups.items():
        job = make_job(name, candidates=("eager", "inductor"))
        records += [control(job), make_record(job, "inductor", speedup=speedup, **changes)]
    return records


def compared(folder: Path, *sides: Sequence[Record]) -> RunChanges:
    """Of runs with these records, the new one last."""
    runs = [load("--compare", write(folder / name, side)) for name, side in zip("abcd", sides, strict=False)]
    return changes_between(*runs)


def verdict(change: Change) -> Verdict | None:
    return change.ratios[SPEEDUP].verdict


def test_times_of_another_machine_are_not_compared_but_endings_are(tmp_path: Path) -> None:
    def at(**facts: Any) -> Record:
        record = make_record(make_job(), speedup=1.5, metrics={"graph_breaks": len(facts)})
        return replace(record, environment={**record.environment, **facts})

    plain, frozen = at(compiler_settings=""), at(compiler_settings="inductor.freezing=True")
    moved, outside = at(device_name="Other CPU", cpu="Other CPU"), "what is set outside of this program"
    for number, (first, second, facts) in enumerate(
        [(at(), moved, ["device_name"]), (plain, frozen, [outside]), (plain, plain, []), (at(), frozen, [])]
    ):
        changes = compared(tmp_path / str(number), [first], [second])
        assert [name for (name, _, _), _ in changes.incomparable] == facts
        assert (len(changes.timed), changes.drift is None) == (not facts, bool(facts))
        assert len(breaks(changes)) == (first is not plain)
        if facts:
            with pytest.raises(UsageError, match=f"{facts[0]} is .* in the first run and "):
                gated(changes, "regression")


def test_what_a_run_planned_and_never_measured_is_lost(tmp_path: Path) -> None:
    """A killed run must not pass for want of failures."""
    jobs = [make_job(name, candidates=("inductor",)) for name in ("one", "two")]
    records = [make_record(job) for job in jobs]
    whole, torn, other = (
        load("--compare", write(tmp_path / name, records[:count], jobs=to_json(tuple(jobs))))
        for name, count in (("a", 2), ("b", 1), ("c", 1))
    )
    changes = changes_between(whole, torn)
    assert any("is not finished: no record of 1 result" in note for note in changes.second.notes)
    (case,) = gated(changes, "parity").cases
    assert case == "toys two (training, float32, cpu, scale full, batch size 8), inductor: pass -> no record"
    again = changes_between(torn, whole)
    news = [result.name for result in again.matched.only_second]
    fixed = [change for change in again.every if change.ending == FIXED]
    assert (fixed, news) == ([], ["two"]), "what was never measured before is not fixed now"
    neither = changes_between(torn, other)
    assert (neither.matched.only_first, neither.matched.only_second, len(neither.changes)) == ([], [], 1)


def test_what_ctrl_c_cut_short_is_compared_and_said_to_be_unfinished(tmp_path: Path) -> None:
    jobs = [make_job(name, candidates=("inductor",)) for name in ("one", "two", "three")]
    first, second, _ = (make_record(job) for job in jobs)
    stopped = replace(second, rounds_ended=STOPPED)
    folder = write(tmp_path / "a", [first, stopped], jobs=to_json(tuple(jobs)))
    cut = load("--compare", folder)
    assert cut.notes == (f"{folder} is not finished: no record of 1 result, and Ctrl-C cut 1 result short",)
    append_record(folder / "records.jsonl", second)  # by --resume
    assert load("--compare", folder).notes == (f"{folder} is not finished: no record of 1 result",)
    assert len(changes_between(cut, cut).timed) == 2


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (make_job("a"), make_job("b"), "share no model; compare two runs of the same models"),
        (make_job("a"), make_job("a", mode=Mode.INFERENCE), "share models but no mode"),
        (make_job("a"), make_job("a", batch_size=1), "batch size is 8 in the first and 1 in the second"),
        (make_job("a"), make_job("a", suite="others"), "share models but no suite"),
        (make_job(candidates=("inductor",)), make_job(candidates=("aot_eager",)), r"no compiler \(inductor"),
    ],
)
def test_nothing_in_common_is_one_sentence(tmp_path: Path, first: Job, second: Job, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compared(tmp_path, *([make_record(job, job.candidates[0])] for job in (first, second)))


# -- --fail-on --------------------------------------------------------------------
def gated(subject: RunChanges | Summary, word: str) -> GateResult:
    (gate,) = gates_asked([word])
    return gate_result(subject, gate)


def gate(changes: RunChanges, *words: str) -> list[int]:
    return [len(gated(changes, word).cases) for word in words]


def test_gates(tmp_path: Path) -> None:
    steady = dict.fromkeys(MODELS, 1.5)
    before = measured(steady)
    after = measured({**steady, "model_1": 1.35, "model_2": 1.0}, metrics={"graph_breaks": 1})
    changes, reverse = compared(tmp_path, before, after), compared(tmp_path / "reverse", after, before)
    assert gate(changes, "regression", "regression:15%", "regression:50%", "improvement") == [2, 1, 0, 0]
    assert gate(reverse, "improvement", "improvement:20%", "regression", "graph-breaks") == [2, 1, 0, 0]
    assert gate(changes, "parity", "graph-breaks") == [0, 6]


@pytest.mark.parametrize("with_control", [False, True])
def test_a_gate_does_not_fail_for_other_work_without_a_control(tmp_path: Path, with_control: bool) -> None:
    busy = {"involuntary_switches": 5000, "rounds_wall_s": 10.0}
    steady = dict.fromkeys(MODELS, 1.5)
    sides = [measured(steady, metrics=busy), measured({**steady, "model_1": 1.0}, metrics=busy)]
    kept = [[r for r in side if with_control or r.candidate != "eager"] for side in sides]
    changes = compared(tmp_path, *kept)
    assert any(line == "Other work used the CPUs in B: 6 of 6 results." for line in head(changes))
    if with_control:
        assert gate(changes, "regression:5%") == [1]
    else:
        with pytest.raises(UsageError, match=r"regression:5 %: other work used the CPUs during these runs"):
            gate(changes, "regression:5%")
    assert gate(changes, "regression:50%", "parity") == [0, 0]


@pytest.mark.parametrize(("threshold", "word"), [(0.02, Verdict.SLOWER), (0.10, Verdict.SAME)])
def test_the_runs_own_threshold_and_noise_decide(tmp_path: Path, threshold: float, word: Verdict) -> None:
    """One model in training, of which 0.6 % is assumed: a loss of 6 % is seen, and may not matter."""
    job = make_job(protocol=Protocol(noise_threshold=threshold))
    changes = compared(tmp_path, *([make_record(job, speedup=s, jitter=0.002)] for s in (1.5, 1.41)))
    assert verdict(changes.changes[0]) is word
    assert gate(changes, "regression", "regression:3%") == [threshold < 0.1, 1]
    (line,) = (line for line in head(changes) if line.startswith("Noise of a process"))
    assert ": 0.60 % of a speedup, assumed as in the runs' own reports;" in line


# -- real processes ---------------------------------------------------------------
def test_twenty_real_runs_of_the_same_thing_are_not_told_apart() -> None:
    """The A/A controls of twenty processes on a busy machine, as if they were a compiler."""
    file = Path(__file__).parents[2] / "results" / "aa-control" / "records.jsonl.gz"
    # the same (job, candidate) is there once for each of the runs
    with gzip.open(file) as lines:
        records = [from_json(Record, json.loads(line)) for line in lines]
    runs = []
    for first in range(0, len(records), 3):
        named = [
            replace(r, candidate="other", job=replace(r.job, candidates=("other",)))
            for r in records[first : first + 3]
        ]
        labels = suite_labels(record.job.case.suite for record in named)
        runs.append(Run(path=Path(str(first)), results=tuple(results_of(named, labels))))
    assert len(runs) == 20
    timed = [
        change
        for place, run in enumerate(runs)
        for other in runs[place + 1 : place + 4]
        for change in changes_between(run, other).timed
    ]
    assert len(timed) == 3 * (17 * 3 + 2 + 1)
    held = [change.speedup.within(1) for change in timed if change.speedup]
    assert sum(held) / len(held) >= 0.93
    called = [change for change in timed if verdict(change) in (Verdict.SLOWER, Verdict.FASTER)]
    assert len(called) <= 0.05 * len(timed)


# -- written out, and what cannot be read -------------------------------------------------------
def texts(changes: RunChanges, *gates: str) -> tuple[str, str, dict[str, Any]]:
    """(terminal, Markdown, JSON)"""
    judged, _ = gate_results(changes, gates_asked(gates))
    with Console(width=200, record=True) as console, console.capture() as printed:
        print_changes(changes, judged, console)
    return printed.get(), render_markdown(changes, judged), json.loads(render_json(changes, judged))


def worse(folder: Path) -> RunChanges:
    """In the second run one model fails, another has a graph break more."""
    steady = make_record(make_job("steady"), speedup=1.5)
    before, after = (
        [make_record(make_job("lost"), status=status), make_record(make_job("broken"), metrics=metrics)]
        for status, metrics in (
            (Status.PASS, {"graph_breaks": 2}),
            (Status.FAIL_ACCURACY, {"graph_breaks": 3}),
        )
    )
    return compared(folder, [steady, *before], [steady, *after])


def test_what_is_no_run_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "records.txt").write_text("")
    (write(tmp_path / "damaged", [make_record(make_job())]) / "run.json").write_text("{")
    for path, sentence in (
        (tmp_path / "damaged", r"--compare: .*run\.json is damaged"),
        (tmp_path / "nowhere", r"no run in .*nowhere; give the folder of a run, or its records\.jsonl"),
        (tmp_path, "there is no run in"),
        (tmp_path / "records.txt", "holds no result"),
        (tmp_path / "fifo", "there is no run in .*fifo"),
        (Path("/dev/zero"), "there is no run in /dev/zero"),
    ):
        with pytest.raises(UsageError, match=sentence):
            load("--compare", path)


def test_no_gate_passes_for_a_damaged_run(tmp_path: Path) -> None:
    records = [make_record(make_job("one"), speedup=1.5), make_record(make_job("two"), speedup=1.5)]
    whole, torn = write(tmp_path / "a", records), write(tmp_path / "b", records)
    first, second = (torn / "records.jsonl").read_text().splitlines()
    (torn / "records.jsonl").write_text(f"{first}\n{second[:100]}\n")
    changes = changes_between(load("--compare", whole), load("--compare", torn))
    results, refusals = gate_results(changes, gates_asked(["regression", "parity", "graph-breaks"]))
    assert results == []
    assert "b has damaged lines, so results may be missing" in str(refusals[0])


def test_outputs_say_the_same(tmp_path: Path) -> None:
    printed, markdown, data = texts(worse(tmp_path), "parity", "graph-breaks")
    told = ("New failures: 1", "pass -> fail_accuracy", "2 -> 3 graph breaks", "Drift: eager in B", "assumed")
    for text in (printed, markdown):
        plain = text.replace("\\", "").replace("&gt;", ">")
        assert [said for said in told if said not in plain] == []
    assert "--fail-on parity: FAILED (results that passed before and fail now: 1)" in printed
    assert [gate["failed"] for gate in data["gates"]] == [True, True]
    assert {change["name"] for change in data["changes"]} == {"steady", "lost", "broken"}


@pytest.mark.slow
def test_markdown_fits_into_a_comment_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    names = [f"{name} {number}" for number in range(80) for name in HOSTILE_NAMES]
    jobs = [make_job(name, suite=HOSTILE_SUITE, candidates=("inductor",)) for name in names]
    before = [make_record(job) for job in jobs]
    after = [make_record(job, status=Status.CRASH) if n % 2 else before[n] for n, job in enumerate(jobs)]
    printed, markdown, _ = texts(compared(tmp_path, before, after), "parity")
    assert len(markdown.encode()) < LIMIT
    assert not any(markup in markdown for markup in ("<script", "@someone"))
    assert "omitted, to keep this short: --format=json has all of them" in markdown
    assert "\x1b" not in printed
    assert "[red]markup[/red]" in printed


def test_a_narrow_terminal_drops_columns_and_says_so(tmp_path: Path) -> None:
    with Console(width=80) as console, console.capture() as printed:
        print_changes(worse(tmp_path), (), console)
    lines = printed.get().splitlines()
    assert any(line.startswith("Columns omitted for width: ") for line in lines)
    footer = lines.index(next(line for line in lines if line.startswith("A speedup counts as changed")))
    assert all(len(line) <= 80 for line in lines[2 : footer + 3])
    assert any(line.startswith("broken") for line in lines)
