"""The folder of a run and its records.jsonl: nothing is written over, and damage is named."""

import gzip
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.codec import to_json
from harness.schema import SCHEMA_VERSION, STOPPED, Environment, Extras, Job, Protocol, Record, Status
from runner.cli.main import main
from runner.errors import UsageError
from runner.runs.compare.run import load as load_run
from runner.store.record_file import append_record, read_records
from runner.store.run_folder import RECORDS, RUN, RunFolder, read_run, read_run_json
from tests.factories import Capture, Patch, make_job, make_record
from torchduet import load


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("run", "--output-dir: .* holds another run; name a new folder, or use --resume"),
        *(("records", "holds another run"), ("files", "holds files already"), ("file", "is a file")),
        *(("file/below", "cannot be written"), ("link", "link is a link to a folder that is not there")),
    ],
)
def test_nothing_is_written_over(tmp_path: Path, path: str, says: str) -> None:
    RunFolder.create(tmp_path / "run", [make_job()], [])
    held = [tmp_path / name for name in ("file", "files/precious.txt", f"records/{RECORDS}")]
    for file in held:
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=says):
        RunFolder.create(tmp_path / path, [make_job()], [])
    assert {file.read_text() for file in held} == {"x"}


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("runner.store.run_folder._stamp", lambda: "20260101T000000")
    folders = [RunFolder.create(None, [make_job()], []) for _ in range(3)]
    first = folders[0].path
    assert [folder.path for folder in folders] == [first, Path(f"{first}-2"), Path(f"{first}-3")]
    assert first.parent == tmp_path / "logs"


def test_of_two_runs_at_once_the_first_keeps_the_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    """It removes the unfinished plan of the second, unless the second has removed it already."""
    link = Path.hardlink_to

    def late(path: Path, target: Path) -> None:
        monkeypatch.setattr(Path, "hardlink_to", link)
        with RunFolder.create(path.parent, [make_job()], ["first"]).claimed():
            link(path, target)

    monkeypatch.setattr(Path, "hardlink_to", late)
    with pytest.raises(UsageError, match="holds another run"):
        RunFolder.create(tmp_path / "run", [make_job()], ["second"])
    assert read_run_json(tmp_path / "run")["command"] == ["first"]
    monkeypatch.setattr(Path, "glob", lambda *_: iter([tmp_path / "gone"]))
    with RunFolder.reopen("--resume", tmp_path / "run").claimed() as torn:
        assert torn is None


def test_the_logs_first_line_says_how_to_run_the_job_by_hand(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", [make_job()], [])
    log = folder.open_case(make_job())
    first = log.read_text().splitlines()[0]
    assert first.endswith(f"python -m harness.worker --job {log.parent / 'job.json'}")
    assert folder.open_case(make_job()) == log  # a second worker adds to the same log
    assert log.read_text().count("by hand") == 1
    assert "MALLOC_" in first
    system = make_job("as it comes", extras=Extras(allocator="system"))
    assert "MALLOC_" not in folder.open_case(system).read_text()


def test_records_come_in_the_order_of_the_plan_or_without_one_in_that_of_the_file(tmp_path: Path) -> None:
    jobs = [make_job(name) for name in ("slow", "fast", "middle")]
    folder = RunFolder.create(tmp_path / "run", jobs, ["--training"])
    for job in (jobs[1], jobs[2], jobs[0]):
        folder.append(make_record(job))

    def names() -> list[str]:
        return [record.job.case.name for record in read_run(folder.path / RECORDS).records]

    assert names() == ["slow", "fast", "middle"]
    in_file = [record.job.case.name for record in read_records(folder.records_path).records]
    assert in_file == ["fast", "middle", "slow"]
    for text in ("[]", "{", '{"jobs": [1]}', '{"jobs": [{"case": {}}]}', '{"jobs": []}'):
        (folder.path / RUN).write_text(text)
        assert names() == in_file
    (folder.path / RUN).unlink()
    assert names() == in_file


@pytest.fixture
def here(monkeypatch: Patch) -> None:
    """This machine is the one of the made-up records, and measures nothing."""
    monkeypatch.setattr("runner.cli.actions.measure.cpu_model", lambda: "Synthetic CPU")
    monkeypatch.setattr("runner.cli.actions.measure.version_of", lambda _: "0.0.0")  # without a local part
    monkeypatch.setattr("runner.cli.actions.measure.devices_here", lambda _: {"models": {"cuda": "A card"}})
    monkeypatch.setattr("runner.plan.probe.missing_devices", lambda _: {"cuda": "it is gone"})
    monkeypatch.setattr("runner.cli.measuring.measure", lambda *_: 0)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("device", "facts", "version", "says"),
    [
        ("cpu", {}, SCHEMA_VERSION, ""),
        ("cpu", {}, 2, "was measured by an older version; measure the other jobs in a new folder"),
        (
            "cpu",
            {"cpu": "Other"},
            SCHEMA_VERSION,
            "has results of cpu Other, and this is cpu Synthetic CPU; ",
        ),
        (
            "cpu",
            {"torch": "9.9"},
            SCHEMA_VERSION,
            "has results of torch 9.9, and this is torch 0.0.0; measure",
        ),
        ("cuda", {"device_name": "A card"}, SCHEMA_VERSION, "cuda is not there (it is gone); go on where"),
        ("cuda", {"device_name": "B card"}, SCHEMA_VERSION, "has results of device_name B card, and this is"),
    ],
)
def test_a_run_is_continued_where_it_was_measured(
    tmp_path: Path, capsys: Capture, device: str, facts: dict[str, str], version: int, says: str
) -> None:
    job = make_job("m", device=device)
    folder = RunFolder.create(tmp_path / "run", (job,), ("x",))
    measured = replace(make_record(job, "inductor"), schema_version=version)
    folder.append(replace(measured, environment={**measured.environment, **facts}))
    assert main(["--resume", str(folder.path)]) == (2 if says else 0)
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("threads", "refused"), [(None, True), (2, False)])
def test_a_run_is_not_continued_where_torch_chooses_other_threads(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch, threads: int | None, refused: bool
) -> None:
    """In one record, processes with one thread would stand beside processes with another number."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = tmp_path / "run"
    words = ["--training", "--suites=tiny_gpt", "--only=MLP_addition", "-dcpu", "--compilers=aot_eager"]
    assert main([*words, f"--output-dir={run}"]) == 0
    job = make_job("m", protocol=Protocol(threads=threads))
    RunFolder.reopen("--resume", run).append(make_record(job, "inductor"))
    assert main([f"--resume={run}"]) == 0
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert main([f"--resume={run}"]) == (2 if refused else 0)
    said = "torch chose its threads by OMP_NUM_THREADS 1, and here by OMP_NUM_THREADS (not set)"
    assert (said in capsys.readouterr().err) is refused


@pytest.mark.parametrize("words", [[], ["--no-fork-server", "--prepare-ahead=1"]])
def test_how_a_run_goes_on_has_the_flags_of_where_it_ran(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch, words: list[str]
) -> None:
    def stopped(folder: RunFolder, *_: object) -> int:
        print(folder.how_to_go_on())
        return 130

    monkeypatch.setattr("runner.cli.measuring.measure", stopped)
    run = tmp_path / "my run"
    first = ["--training", "--suites=tiny_gpt", "--only=MLP_addition", "-dcpu", "--compilers=aot_eager"]
    for again in ([*first, f"--output-dir={run}"], [f"--resume={run}"]):
        assert main([*again, *words]) == 130
        said = shlex.split(capsys.readouterr().out)
        assert said[said.index("--resume") :] == ["--resume", str(run), *words]


def test_a_folder_that_was_deleted_during_the_run_is_not_made_again(tmp_path: Path) -> None:
    job = make_job("m")
    folder = RunFolder.create(tmp_path / "run", (job,), ("x",))
    folder.records_path.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        folder.append(make_record(job))
    assert not folder.records_path.exists()
    assert "records.jsonl was removed: measure again" in str(folder.unwritable(raised.value))
    shutil.rmtree(folder.path)
    with pytest.raises(FileNotFoundError):
        folder.open_case(job)
    assert not folder.path.exists()


# -- records.jsonl ------------------------------------------------------------
def record(candidate: str, name: str = "m") -> Record:
    job = make_job(name, candidates=("a", "b"))
    return Record(job=job, candidate=candidate, status=Status.PASS, metrics={"x": 0.1 + 0.2, "none": None})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


@pytest.mark.parametrize("cut", range(1, 400, 7))
def test_a_line_cut_anywhere_is_named_and_costs_no_other(path: Path, cut: int) -> None:
    append_record(path, record("a"))
    size = path.stat().st_size
    append_record(path, record("b"))
    path.write_bytes(path.read_bytes()[: size + cut])  # killed in the middle of a write
    assert [r.candidate for r in read_records(path).records] == ["a"]
    append_record(path, record("b"))
    content = read_records(path)
    assert [r.candidate for r in content.records] == ["a", "b"]
    (damage,) = content.damage
    assert "line 2 is damaged" in damage


def test_a_result_that_was_stopped_is_measured_again_and_then_replaced(path: Path) -> None:
    whole, cut = record("a"), replace(record("a"), rounds_ended=STOPPED)
    for result in (cut, cut, whole, whole):
        append_record(path, result)
    content = read_records(path)
    assert (content.records, content.unused) == ((whole,), 1)
    assert "line 4 repeats a of " in content.damage[0]


def test_a_record_of_a_newer_format_is_refused(path: Path) -> None:
    append_record(path, record("a"))
    newer = re.sub(rb', "crc": "\w+"}', b"}", path.read_bytes())
    path.write_bytes(newer.replace(b'"schema_version": %d' % SCHEMA_VERSION, b'"schema_version": 999'))
    content = read_records(path)
    assert content.records == ()
    assert f"format version 999, newer than this program's {SCHEMA_VERSION}" in content.damage[0]


@pytest.mark.parametrize(
    "line",
    [
        *(b"garbage", b"{}", b"[]", b"\xff\xfe", b'{"schema_version": 0}', b'{"schema_version": 1}'),
        b"[" * 100_000,
    ],
)
def test_garbage_is_named_by_its_line(path: Path, line: bytes) -> None:
    append_record(path, record("a"))
    with path.open("ab") as file:
        file.write(line + b"\n")
    append_record(path, record("b"))
    content = read_records(path)
    assert [r.candidate for r in content.records] == ["a", "b"]
    (damage,) = content.damage
    assert "line 2" in damage
    assert "\n" not in damage


# -- damage that a checksum finds, and damage that is over ------------------------------
@pytest.mark.parametrize("place", range(20, 900, 40))
def test_a_changed_bit_is_damage(path: Path, place: int) -> None:
    append_record(path, record("a", "x" * 900))
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    reading = read_records(path)
    assert (reading.records, reading.unused) == ((), 1)


def test_lines_without_a_checksum_and_a_byte_order_mark_are_read(path: Path) -> None:
    lines = [json.dumps(to_json(record(name))) for name in "ab"]
    path.write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    append_record(path, record("a", "n"))
    assert read_records(path).records == (record("a"), record("b"), record("a", "n"))


def test_messages_about_many_lines_are_few(path: Path) -> None:
    path.write_bytes(b"garbage\n" * 50_000)
    content = read_records(path)
    assert (content.unused, len(content.damage)) == (50_000, 11)
    assert content.damage[-1].endswith("49,990 more lines cannot be used")


def test_a_damaged_line_is_a_note_once_its_result_was_measured_again(tmp_path: Path, capsys: Capture) -> None:
    folder = RunFolder.create(tmp_path / "run", [record("a").job], [])
    for candidate in "ab":
        folder.append(record(candidate))
    content = folder.records_path.read_bytes()
    folder.records_path.write_bytes(content.replace(b'"candidate": "b"', b'"candidate": "c"'))
    words = ["--visualize-logs", str(folder.path), "--format=csv"]
    assert main(words) == 2
    assert "line 2 is damaged (its checksum does not fit)" in capsys.readouterr().err
    folder.append(replace(record("b"), rounds_ended=STOPPED))  # of another process, that Ctrl-C ended
    assert main(words) == 2
    folder.append(record("b"))
    capsys.readouterr()
    assert main(words) == 0
    error = capsys.readouterr().err
    assert error.startswith("note: ")
    assert error.endswith("every planned result has a record\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("job", "words", "sentence"),
    [
        (make_job(extras=Extras(compile_runs=2)), "--prepare-ahead=4", "--compile-runs times every"),
        (make_job(candidates=("inductor[max_autotune=True]",)), "--prepare-ahead=4", "max-autotune measures"),
        (make_job(device="cuda"), "--prepare-ahead=4", "--prepare-ahead: on an accelerator"),
        (make_job(suite="/nowhere/gone.py"), "--format=csv", "--resume: there is no file '/nowhere/gone.py'"),
        (
            make_job(environments=(Environment(name="e", python="p", asked="p"),), candidates=("eager@e",)),
            "--executor=ray",
            "--envs uses interpreters of this machine",
        ),
    ],
)
def test_resume_checks_its_plan(tmp_path: Path, capsys: Capture, job: Job, words: str, sentence: str) -> None:
    RunFolder.create(tmp_path / "run", [job], [])
    assert main([f"--resume={tmp_path / 'run'}", words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_packed_run_is_read_everywhere_and_not_continued(tmp_path: Path, capsys: Capture) -> None:
    folder = RunFolder.create(tmp_path / "run", [make_job()], [])
    folder.append(make_record(make_job()))
    for name in (RECORDS, RUN):
        file = folder.path / name
        file.with_name(f"{name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert main([f"--visualize-logs={folder.path}", "--format=json"]) == 0
    assert len(load(folder.path).comparisons) == len(load(folder.path / f"{RECORDS}.gz").comparisons) == 1
    assert len(load_run("--compare", folder.path).results) == 4  # with those of the plan
    assert main([f"--resume={folder.path}"]) == 2
    assert f"run is packed; first: gunzip {folder.path}/{RECORDS}.gz" in capsys.readouterr().err
    with pytest.raises(UsageError, match="holds another run"):
        RunFolder.create(folder.path, [make_job()], [])
    packed = folder.path / f"{RECORDS}.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UsageError, match=f"{RECORDS}.gz cannot be read .*was cut short"):
        load(packed)
