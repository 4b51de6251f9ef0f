"""Joining runs: what belongs together becomes one run, what does not is refused with the reason."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import STOPPED, Job, Record, Status
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.partition import Partition, part_facts
from runner.plan.sweep import points
from runner.store.merge import Merged, merge
from runner.store.run_folder import RunFolder
from tests.factories import Capture, Patch, known, make_job, make_record, with_samples

PAIR = ("eager", "inductor")
ONE, TWO = (make_job(name, candidates=PAIR) for name in ("one", "two"))


def write_run(
    path: Path, jobs: Sequence[Job], records: Sequence[Record], facts: dict[str, Any] | None = None
) -> Path:
    folder = RunFolder.create(path, jobs, ["--training"], facts)
    for record in records:
        with folder.open_case(record.job).open("a") as file:
            file.write(f"words of {record.candidate} of {record.job.case.name}\n")
        folder.append(record)
    return path


def whole(job: Job) -> list[Record]:
    return [make_record(job, candidate) for candidate in job.candidates]


def two_runs(folder: Path) -> tuple[Path, Path]:
    a, b = (write_run(folder / name, [job], whole(job)) for name, job in (("a", ONE), ("b", TWO)))
    return a, b


def everything_in(*folders: Path) -> dict[Path, str]:
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_two_runs_become_one_and_stay_as_they_are(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    before = everything_in(a, b)
    merged = merge([a, b], tmp_path / "new", ["--merge"])
    folder = merged.folder
    assert everything_in(a, b) == before
    assert merged == Merged(folder=folder, missing="", damage=(), lost=False)
    assert folder.jobs() == (ONE, TWO)
    assert folder.read().records == (*whole(ONE), *whole(TWO))
    run = json.loads((folder.path / "run.json").read_text())
    assert [(entry["folder"], entry["results"], entry["command"]) for entry in run["merged_from"]] == [
        (str(a), {ONE.key: list(PAIR)}, ["--training"]),
        (str(b), {TWO.key: list(PAIR)}, ["--training"]),
    ]


def test_a_job_may_have_its_candidates_from_two_runs(tmp_path: Path) -> None:
    halves = [replace(ONE, candidates=(name,)) for name in PAIR]
    a, b = (write_run(tmp_path / name, [half], whole(half)) for name, half in zip("ab", halves, strict=True))
    merged = merge([a, b], tmp_path / "new", [])
    folder = merged.folder
    assert (folder.jobs(), merged.missing) == ((ONE,), "")
    log = (folder.path / "cases" / ONE.key / "output.log").read_text()
    assert log.startswith("# by hand: ")
    assert f"--job {folder.path}" in log.splitlines()[0]
    assert log.index("words of eager") < log.index(f"# from {b}") < log.index("words of inductor")


def test_files_beside_a_log_are_kept_all(tmp_path: Path) -> None:
    a, b = (
        write_run(tmp_path / name, [ONE], [make_record(ONE, candidate)])
        for name, candidate in zip("ab", PAIR, strict=True)
    )
    for name, path in (("first", a), ("second", b)):
        (path / "cases" / ONE.key / "deep").mkdir()
        (path / "cases" / ONE.key / "deep" / "trace.json").write_text(name)
        (path / "cases" / ONE.key / "same.txt").write_text("equal")
        (path / "cases" / ONE.key / "link").symlink_to("/etc/hostname")
    folder = merge([a, b], tmp_path / "new", []).folder
    case = folder.path / "cases" / ONE.key
    kept = {str(path.relative_to(case)) for path in case.rglob("*") if path.is_file()}
    assert kept == {"job.json", "output.log", "deep/trace.json", "deep/trace-2.json", "same.txt"}
    assert (case / "deep" / "trace-2.json").read_text() == "second"


def test_identical_results_are_kept_once(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    joined = merge([a, b], tmp_path / "ab", []).folder
    again = merge([joined.path, a], tmp_path / "aba", []).folder
    assert again.read() == replace(again.read(), records=(*whole(ONE), *whole(TWO)))
    log = (again.path / "cases" / ONE.key / "output.log").read_text()
    assert log.count("words of eager of one") == 1


def test_tags_and_what_a_candidate_needs_are_of_the_run_that_has_them(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [ONE], whole(ONE), {"tags": ["night"]})
    own = replace(
        ONE,
        candidates=("mine.f", "tvm"),
        own_compilers={"mine.f": "/mine.py:f"},
        unavailable={"tvm": "it is not installed"},
    )
    b = write_run(tmp_path / "b", [own], [], {"tags": ["night", "trial"]})
    merged = merge([a, b], tmp_path / "new", [])
    (job,) = merged.folder.jobs()
    assert job.candidates == (*PAIR, "mine.f", "tvm")
    assert (job.own_compilers, job.unavailable) == (own.own_compilers, own.unavailable)
    run = json.loads((merged.folder.path / "run.json").read_text())
    assert run["tags"] == ["night", "trial"]


@pytest.mark.parametrize(("second", "kept"), [(["2 CPUs"], ["2 CPUs"]), (["4 CPUs"], None)])
def test_the_choice_of_threads_is_kept(tmp_path: Path, second: list[str], kept: list[str] | None) -> None:
    a = write_run(tmp_path / "a", [ONE], whole(ONE), {"threads": ["2 CPUs"]})
    b = write_run(tmp_path / "b", [TWO], whole(TWO), {"threads": second})
    run = json.loads((merge([a, b], tmp_path / "new", []).folder.path / "run.json").read_text())
    assert run.get("threads") == kept


def test_what_nobody_measured_is_named_and_can_be_resumed(tmp_path: Path) -> None:
    three = make_job("three", candidates=PAIR)
    first, second = (part_facts(Partition(index=n, total=3), (ONE, TWO, three)) for n in (0, 1))
    a = write_run(tmp_path / "a", [ONE], whole(ONE), first)
    done, cut = whole(TWO)
    b = write_run(tmp_path / "b", [TWO], [done, replace(cut, rounds_ended=STOPPED)], second)
    merged = merge([a, b], tmp_path / "new", [])
    assert merged.folder.jobs() == (ONE, TWO, three)
    planned = f"Planned but finished in none of these runs: inductor of {TWO.key} and 2 more "
    assert merged.missing.startswith(planned)
    resume = f"(3 of 6 results); go on with: python runner.py --resume {merged.folder.path}"
    assert merged.missing.endswith(resume)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_result_cut_short_is_taken_from_the_run_that_has_it_whole(tmp_path: Path, order: str) -> None:
    cut = replace(other_samples(), rounds_ended=STOPPED)
    write_run(tmp_path / "a", [ONE], [cut, whole(ONE)[1]])
    write_run(tmp_path / "b", [ONE], whole(ONE)[:1])
    merged = merge([tmp_path / name for name in order], tmp_path / "new", [])
    assert merged.missing == ""
    assert {record.candidate: record for record in merged.folder.read().records} == dict(
        zip(PAIR, whole(ONE), strict=True)
    )
    run = json.loads((merged.folder.path / "run.json").read_text())
    results = {Path(entry["folder"]).name: entry["results"] for entry in run["merged_from"]}
    assert results == {"a": {ONE.key: ["inductor"]}, "b": {ONE.key: ["eager"]}}
    # cut short in each run, it is measured again
    write_run(tmp_path / "c", [ONE], [replace(whole(ONE)[0], rounds_ended=STOPPED)])
    again = merge([tmp_path / "a", tmp_path / "c"], tmp_path / "again", [])
    assert f"finished in none of these runs: eager of {ONE.key} (1 of 2 results)" in again.missing


def test_a_torn_line_is_an_error_until_its_result_is_there(tmp_path: Path, capsys: Capture) -> None:
    a, b = two_runs(tmp_path)
    lines = (b / "records.jsonl").read_text().splitlines(keepends=True)
    (b / "records.jsonl").write_text(lines[0] + lines[1][:80])
    merged = merge([a, b], tmp_path / "new", [])
    folder = merged.folder
    assert len(folder.read().records) == 3
    assert not folder.read().damage
    assert "line 2 is damaged" in merged.damage[0]
    assert f"inductor of {TWO.key} (1 of 4 results)" in merged.missing
    words = ["--merge", str(a), str(b), f"--output-dir={tmp_path / 'again'}", "--format=csv"]
    assert main(words) == 2
    assert "line 2 is damaged" in capsys.readouterr().err
    c = write_run(tmp_path / "c", [TWO], whole(TWO)[1:])
    assert main([*words[:3], str(c), f"--output-dir={tmp_path / 'all'}", "--format=csv"]) == 0
    assert capsys.readouterr().err.startswith("note: ")


def test_a_damaged_line_of_a_run_without_a_plan_may_have_held_a_result(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    with (a / "records.jsonl").open("a") as file:
        file.write((b / "records.jsonl").read_text()[:80])
    for folder in (a, b):
        (folder / "run.json").unlink()
    merged = merge([a, b], tmp_path / "new", [])
    assert (merged.missing, merged.lost) == ("", True)


# -- refusals -----------------------------------------------------------------
def in_environment(job: Job, **facts: Any) -> list[Record]:
    return [replace(r, environment={**r.environment, **facts}) for r in whole(job)]


def test_a_run_of_before_models_were_counted_belongs_to_one_of_after(tmp_path: Path) -> None:
    counted = replace(TWO, case=replace(TWO.case, parameters=20))
    assert counted == TWO
    a, b = (
        write_run(tmp_path / "a", [ONE, TWO], whole(ONE)),
        write_run(tmp_path / "b", [counted], whole(counted)),
    )
    merged = merge([a, b], tmp_path / "new", [])
    assert merged.folder.read().records == (*whole(ONE), *whole(TWO))


def other_samples() -> Record:
    record = make_record(ONE, "eager")
    return with_samples(record, baseline_s=known(record.samples).baseline_s[::-1])


REFUSED = {
    "torch is 0.0.0+synthetic in the first and 9.9 in the second": in_environment(TWO, torch="9.9"),
    "cuda is None in the first and 12.8 in the second": in_environment(TWO, cuda="12.8"),
    "python is 3.0 in the first and 3.1 in the second": in_environment(TWO, python="3.1.0"),
    "cpu is Synthetic CPU in the first and Other in the second": in_environment(TWO, cpu="Other"),
    "device_name of cpu is Synthetic CPU in the first and O": in_environment(TWO, device_name="Other"),
    "threads is 4 in the first and 1 in the second": in_environment(TWO, threads=1),
    "allocator is default in the first and system in the second": in_environment(TWO, allocator="system"),
    "seed in the protocol of suite toys is 1337 in the first and 7 in the second": whole(
        replace(TWO, protocol=replace(TWO.protocol, seed=7))
    ),
    f"tolerance of {ONE.key} is None in the first and 0.5 in the second": whole(
        replace(ONE, case=replace(ONE.case, tolerance=0.5))
    ),
    f"both measured eager of {ONE.key}, with other values: pass": [
        make_record(ONE, "eager", status=Status.CRASH)
    ],
    f"both measured eager of {ONE.key}, with other values: pass with 20": [other_samples()],
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_does_not_belong_together(says: str, tmp_path: Path) -> None:
    records = REFUSED[says]
    a = write_run(tmp_path / "a", [ONE], in_environment(ONE, allocator="default"))
    b = write_run(tmp_path / "b", list({r.job.key: r.job for r in records}.values()), records)
    before = everything_in(tmp_path)
    with pytest.raises(UsageError) as refused:
        merge([a, b], tmp_path / "new", [])
    sentence = str(refused.value)
    assert sentence.startswith(f"--merge: {a} and {b} do not belong together: {says}")
    assert sentence.endswith("; compare the two runs instead of joining them")
    assert everything_in(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_points_of_a_sweep_with_threads_of_their_own_become_one_run(tmp_path: Path) -> None:
    jobs = [*points(ONE, [("threads", (1, 2))])]
    a, b = (write_run(tmp_path / job.case.point[0], [job], whole(job)) for job in jobs)
    assert merge([a, b], tmp_path / "new", []).folder.jobs() == tuple(jobs)


def test_other_suites_devices_and_threads_of_their_own_are_welcome(tmp_path: Path) -> None:
    suite = replace(TWO, case=replace(TWO.case, suite="other"), protocol=replace(TWO.protocol, threads=1))
    cuda = make_job("three", candidates=PAIR, device="cuda:0")
    a = write_run(tmp_path / "a", [ONE], whole(ONE))
    b = write_run(tmp_path / "b", [suite], in_environment(suite, threads=1))
    c = write_run(tmp_path / "c", [cuda], in_environment(cuda, device_name="GPU", cudnn=9))
    folder = merge([a, b, c], tmp_path / "new", []).folder
    assert len(folder.read().records) == 6


def test_a_suites_file_at_two_places(tmp_path: Path) -> None:
    jobs = [make_job(name, suite=f"/{name}/mine.py", candidates=PAIR) for name in ("x", "y")]
    runs = [write_run(tmp_path / job.case.name, [job], whole(job)) for job in jobs]
    says = "suite mine.py is /x/mine.py in the first and /y/mine.py in the second"
    with pytest.raises(UsageError, match=says):
        merge(runs, tmp_path / "new", [])


def test_paths_that_will_not_do(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    (tmp_path / "empty").mkdir()
    for paths, target, says in (
        ([a], "new", "--merge: one run cannot be merged with itself; name at least two folders"),
        ([a, tmp_path / "b" / ".." / "a"], "new", "is named twice"),
        ([a, tmp_path / "none"], "new", "--merge: there is no folder"),
        ([a, tmp_path / "empty"], "new", "--merge: there is no records.jsonl in"),
        ([a, b], "a/new", "--output-dir: .*/a/new is inside .*/a; name a folder outside"),
        ([a, b], "b", "--output-dir: .*/b is inside"),
        ([a, b], ".", "--output-dir: .* holds files already; name a new folder"),
    ):
        with pytest.raises(UsageError, match=says):
            merge(paths, tmp_path / target, [])


def test_a_damaged_plan(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    (b / "run.json").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"--merge: .*b/run.json is damaged .*; move this file away"):
        merge([a, b], tmp_path / "new", [])


def test_the_plan_of_a_part_says_what_is_unavailable_in_any_part(tmp_path: Path, monkeypatch: Patch) -> None:
    def unavailable(_: object, jobs: Sequence[Job], **__: object) -> tuple[Job, ...]:
        return tuple(replace(job, unavailable={"inductor": "it is not installed"}) for job in jobs)

    monkeypatch.setattr("runner.cli.actions.measure.possible_here", unavailable)
    monkeypatch.setattr("runner.cli.measuring.opened", lambda *_: nullcontext())
    monkeypatch.setattr("runner.cli.measuring.measure", lambda *_: 0)
    words = ["--inference", "--suites=tiny_gpt", "-dcpu", "--total-partitions=2", "--partition-id=0"]
    assert main([*words, f"--output-dir={tmp_path / 'run'}"]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(run["plan"]) > len(run["jobs"])
    assert all(job["unavailable"] for job in run["plan"])
