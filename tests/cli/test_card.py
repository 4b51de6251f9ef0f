"""``make card`` on a CPU: nothing that fails, hangs or is killed takes the numbers of the others."""

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import tau
from harness import devices
from runner.engine.executors import Cases, Events, Stop, Work
from runner.errors import UsageError
from runner.store.record_file import CUT_SHORT, read_records
from runner.store.run_folder import RECORDS, RunFolder
from tests.cli.command import ROOT
from tests.command_line import ran
from tests.factories import Clock, Patch, make_job, make_record
from tests.gpu import card
from tests.gpu.items import ROWS, Item, items

SMALL = {"GPT_150k": 64, "GPT2_124M": 12, "BertForMaskedLM": 32, "resnet50": 64, "Llama_3_2_1B": 1}
BATCHES = {**SMALL, "NanoGPT_addition": 2048, "vit_base_patch16_224": 128, "matmul_published": 16384}
Act = Callable[[], object]


def item(name: str, expected_s: float = 0.01, candidates: tuple[str, ...] = ("eager", "inductor")) -> Item:
    return Item(name=name, expected_s=expected_s, jobs=(make_job(name, candidates=candidates),))


class Pretender:
    """An executor whose records are made up. ``acts``: what happens before each record of a model."""

    def __init__(self, acts: Mapping[str, Act]) -> None:
        self.acts = acts

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        for part in work:
            cases.open_case(part.job)
            for candidate in part.attempt.candidates:
                self.acts.get(part.job.case.name, lambda: None)()
                if stop():
                    return
                yield make_record(part.job, candidate)


def test_the_plan_of_a_card_needs_none_and_has_the_published_batches() -> None:
    planned = items("cuda")
    jobs = [job for planned_item in planned for job in planned_item.jobs]
    assert {job.case.name: job.case.batch_size for job in jobs} == BATCHES
    assert {job.case.scale for job in jobs} == {"full"}
    assert len({job.key for job in jobs}) == len(jobs) == len(ROWS)
    assert sum(planned_item.expected_s for planned_item in planned[:8]) + 12 == 480
    assert [job.candidates for job in jobs if job.protocol.processes == 3] == [jobs[1].candidates]
    assert len(items("cpu")) == len(planned)
    with pytest.raises(UsageError, match="there is no device called 'gpu'"):
        items("gpu")


def test_an_item_begins_only_if_its_time_is_left() -> None:
    clock = Clock()
    watch = card.Watch(end=100.0, clock=clock)
    long, short = item("long", 80.0), item("short", 10.0)
    assert watch.fitting([long, short]) is long
    assert (watch.limit_s(long), watch.limit_s(short)) == (92.0, 25.0)
    clock.now = 10.0  # 90 are left, of 92
    assert watch.fitting([long, short]) is short
    clock.now = 89.0
    assert watch.fitting([long, short]) is None


def raises() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("how", ["hangs", "breaks", "takes five times as long"])
def test_a_bad_item_costs_no_other_its_numbers(how: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(card, "GRACE_S", 0.0)
    alarm, clock = card.Alarm(), Clock()
    before = signal.signal(signal.SIGALRM, alarm.ring)
    acts = {"hangs": lambda: time.sleep(60), "breaks": raises}
    act = acts.get(how, lambda: setattr(clock, "now", clock.now + 5))
    planned = [item(name, 1.0 if name == "bad" else 0.01) for name in ("first", "bad", "last")]
    run = RunFolder.create(tmp_path / "run", [job for each in planned for job in each.jobs], [])
    kept = card.Kept(run=run, scratch=tmp_path, copy_to=tmp_path / "copies")
    monkeypatch.setattr(card.Watch, "limit_s", lambda *_: 0.2)
    try:
        card.sit(planned, kept, card.Watch(end=100.0, clock=clock), Pretender({"bad": act}), alarm)
    finally:
        signal.signal(signal.SIGALRM, before)
    names = [record.job.case.name for record in read_records(tmp_path / "copies" / RECORDS).records]
    assert names == ["first", "first", "last", "last"]
    assert sum("not complete" in line for line in kept.said) == 1


def test_nothing_interrupts_a_file_that_is_written() -> None:
    alarm = card.Alarm()
    writing = alarm.writing()
    writing.__enter__()
    alarm.ring(signal.SIGTERM, None)
    assert alarm.quits
    with pytest.raises(card.Over):
        writing.__exit__(None, None, None)
    with pytest.raises(card.Over):
        alarm.ring(signal.SIGALRM, None)


def pretended(*words: str) -> None:
    """A sitting of made-up records, in a process of its own."""
    names = [item(f"m{number}", candidates=("eager", "aot_eager", "inductor")) for number in range(20)]
    acts = {each.name: lambda: time.sleep(0.02) for each in names}
    replaced = {
        "items": lambda _: names,
        "warmed": lambda *_: None,
        "looked_at": lambda _: ({"name": "Synthetic CPU", "wrong": [], "slow": []}, "facts\n"),
        "LocalExecutor": lambda *_, **__: Pretender(acts),
    }
    for name, value in replaced.items():
        setattr(card, name, value)
    sys.exit(card.main([*words, "--devices=cpu"]))


def started(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)


@pytest.mark.long
def test_ten_kills_lose_nothing_and_the_copies_go_on_elsewhere(tmp_path: Path) -> None:
    folder, copies, elsewhere = tmp_path / "out", tmp_path / "copies", tmp_path / "elsewhere"
    rng, before = random.Random(72), ""
    records, resume = folder / RECORDS, list[str]()
    call = "from tests.cli.test_card import pretended; pretended(*{})".format
    for _ in range(10):
        process = started(call([f"--output-dir={folder}", f"--copy-to={copies}", *resume]))
        facts = folder / card.FACTS  # written when a sitting begins to measure
        sittings = facts.stat().st_mtime_ns if facts.exists() else None
        while not facts.exists() or facts.stat().st_mtime_ns == sittings:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        process.kill()
        process.wait()
        text, resume = records.read_text(), ["--resume"]
        assert text.startswith(before)
        before = text[: text.rfind("\n") + 1]
        assert all(line.endswith(("}", CUT_SHORT.decode())) for line in before.splitlines())
    assert started(call([f"--output-dir={elsewhere}", f"--resume={copies}"])).wait() == 0
    content = read_records(elsewhere / RECORDS)
    assert (len(content.records), content.damage) == (60, ())
    assert {path.name for path in elsewhere.iterdir()} == {*card.FILES}


def test_a_card_goes_on_only_where_it_began(tmp_path: Path) -> None:
    jobs = item("m").jobs

    def options(**changes: object) -> argparse.Namespace:
        return argparse.Namespace(**{"output_dir": tmp_path, "copy_to": None, "resume": "", **changes})

    with pytest.raises(UsageError, match=r"there is no run\.json in"):
        card.folder_of(options(), jobs, "H200")
    run = card.folder_of(options(resume=None), jobs, "H200")
    assert card.folder_of(options(), jobs, "H200").path == run.path
    run.append(make_record(jobs[0]))
    with pytest.raises(UsageError, match="is of cpu Synthetic CPU, and this is cpu H200; name a new folder"):
        card.folder_of(options(), jobs, "H200")
    elsewhere = tmp_path / "elsewhere"
    card.folder_of(options(output_dir=elsewhere, copy_to=tmp_path), jobs, "Synthetic CPU")
    assert (elsewhere / RECORDS).read_bytes() == run.records_path.read_bytes()


@pytest.mark.slow
def test_without_a_card_nothing_is_made(tmp_path: Path) -> None:
    if devices.of("cuda").why_missing() is None:
        pytest.skip("there is a card")
    done = ran(sys.executable, "-m", "tests.gpu.card", f"--output-dir={tmp_path / 'new'}", cwd=ROOT)
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])
    assert done.stderr.startswith("error: --devices: cuda is not there (")


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "patience", "complete"), [(60, 2.5, False), (1200, 100.0, True)])
def test_real_items_pass_at_tiny_sizes_and_a_minute_is_a_minute(
    tmp_path: Path, seconds: int, patience: float, *, complete: bool
) -> None:
    words = [f"--seconds={seconds}", "--devices=cpu", f"--output-dir={tmp_path}"]
    began = time.monotonic()
    process = started(f"from tests.gpu import card; card.MOST = {patience}; card.main({words})")
    assert process.wait() == 0
    assert time.monotonic() - began < seconds + 2
    records = read_records(tmp_path / RECORDS).records
    assert all(record.status.passed for record in records), (tmp_path / card.CARD).read_text()
    planned = sum(len(job.candidates) for each in items("cpu") for job in each.jobs)
    assert records
    assert len(records) == planned or not complete
    assert "failed" not in (tmp_path / card.CARD).read_text()
    assert len([*tmp_path.iterdir()]) <= 8


def test_rows_of_tau_come_from_a_committed_run() -> None:
    folders = sorted((ROOT / "results" / "processes-cpu").glob("training-*"))
    rows = tau.rows(folders)
    assert [row[:25] for row in rows if "inductor" in row] == ['("inductor", "training"):'] * 2
    assert tau.rows([ROOT / "results" / "aa-control"])[0].startswith("# no result of several processes")
