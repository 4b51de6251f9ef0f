"""``make card``: minutes on a card that end with speedups.

    python -m tests.gpu.card --seconds=540 --devices=cuda --output-dir=DIR [--copy-to=DIR2] [--resume[=DIR3]]

Looks at the device for seconds, then measures the rows of ``items.py`` with workers of one host, and ends by
itself. An item begins only if its time is left, else the next one that fits. DIR gets six files, which are
replaced after every item and copied to DIR2; a record is written and printed when it is final. --resume goes
on from such files, in DIR, in DIR2 or in DIR3. At home:

    tar -xzf DIR/cases.tar.gz -C DIR; python runner.py --visualize-logs DIR

--devices=cpu has the CPU stand in at tiny sizes. The exit code is 0 if every record passes.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from harness.schema import Job, Record, Scalar, Status
from runner.analysis.derive import summarize
from runner.analysis.digits import MISSING, estimate_text, ms_text
from runner.cli.commands import job_command
from runner.engine.executors import Executor, Work
from runner.engine.executors.local import LocalExecutor
from runner.engine.experiments import Attempt
from runner.engine.launch import Workers
from runner.engine.worker_start import HostPool
from runner.errors import UsageError
from runner.reports import summary_json
from runner.store.record_file import whole
from runner.store.run_folder import RECORDS, RUN, RunFolder, write_case, write_whole
from tests.gpu.items import Item, items

ROOT = Path(__file__).parents[2]
CASES, FACTS, CARD = "cases.tar.gz", "facts.txt", "card.txt"
FILES = (RUN, RECORDS, summary_json.FILE, CASES, FACTS, CARD)
TESTS = "tests.txt"  # among the cases
COMMANDS = (("nvidia-smi", "-q"), ("lscpu",), (sys.executable, "-m", "pip", "freeze"))
FITS, MOST = 1.15, 2.5  # times the expected seconds: left at an item's begin, and given to it
LAST_S, STOP_S, END_S = 8.0, 12.0, 4.0  # before the end: a worker's timeout, no new rounds, all workers end
GRACE_S, SANITY_S = 15.0, 60.0  # for records after an item's timeout, and for the look at the device
LARGEST_FILE = 4_000_000  # bytes, of a file of a case that is packed


class Over(BaseException):
    """The time of the item, or of all, is over. No failure: ``except Exception`` lets it pass."""


@dataclass(slots=True)
class Alarm:
    """Raises ``Over`` in the main thread at a time or a signal, but not while files are written."""

    quits: bool = False
    _late: bool = False
    _deaf: bool = False

    def ring(self, number: int, _: object) -> None:
        self.quits = self.quits or number != signal.SIGALRM
        self._late = True
        if not self._deaf:
            raise Over

    def within(self, seconds: float) -> None:
        """Rings after these seconds; 0: not at all."""
        self._late = False
        signal.setitimer(signal.ITIMER_REAL, seconds)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._deaf = True
        try:
            yield
        finally:
            self._deaf = False
        if self._late:
            raise Over


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When everything ends, and what still fits before."""

    end: float
    clock: Callable[[], float] = time.monotonic

    def left(self) -> float:
        return self.end - self.clock()

    def fitting(self, waiting: Sequence[Item]) -> Item | None:
        return next((item for item in waiting if FITS * item.expected_s <= self.left()), None)

    def limit_s(self, item: Item) -> float:
        return max(1.0, min(MOST * item.expected_s, self.left() - LAST_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The six files. The folders of the cases are in ``scratch``, and packed after every item."""

    run: RunFolder
    scratch: Path
    copy_to: Path | None = None
    said: list[str] = field(default_factory=list)

    def open_case(self, job: Job) -> Path:
        return write_case(self.scratch / "cases" / job.key, job)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.scratch))

    def missing(self, item: Item) -> list[Work]:
        """The item's work without whole records."""
        done = whole(self.run.read().records)
        left = [(job, tuple(c for c in job.candidates if (job.key, c) not in done)) for job in item.jobs]
        return [Work(attempt=Attempt(job, candidates)) for job, candidates in left if candidates]

    def open(self, item: Item) -> bool:
        """Whether something of the item is to be done."""
        return bool(self.missing(item)) or (not item.jobs and not (self.scratch / "cases" / TESTS).exists())

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.said.append(f"{line}\n")
        write_whole(self.run.path / CARD, "".join(self.said).encode())

    def replace_all(self) -> None:
        """Summary and cases as they are now, and the copies."""
        files = {CASES: _packed(self.scratch)}
        try:
            files |= summary_json.render(summarize(self.run.read().records))
        except Exception as error:  # the records are safe, and can be summarized at home
            self.say(f"no {summary_json.FILE}: {type(error).__name__}: {error}")
        for name, content in files.items():
            write_whole(self.run.path / name, content)
        if self.copy_to is not None:
            copied(self.run.path, self.copy_to)


def copied(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in (source / name for name in FILES):
        if path.is_file():
            write_whole(target / path.name, path.read_bytes())


def _packed(scratch: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for path in sorted((scratch / "cases").rglob("*")):
            if path.is_file() and path.stat().st_size <= LARGEST_FILE:
                packed.add(path, arcname=path.relative_to(scratch))
    return content.getvalue()


def told(record: Record) -> str:
    """The record in one line."""
    job, failure = record.job, record.failure
    text = f"  {job.case.name} {job.dtype} {record.candidate}: {record.status.value}"
    text += f" ({failure.phase}: {failure.kind}: {failure.message[:200]})" if failure else ""
    text += "" if record.environment.get("worker") == "forked" else ", a fresh worker"
    try:
        seen = summarize((record,)).comparisons[0]
    except Exception as error:
        return f"{text}, no numbers ({type(error).__name__}: {error})"
    if seen.baseline_ms is not None:
        text += f", eager {ms_text(seen.baseline_ms)} ms, {estimate_text(seen.estimate)}"
    for what, name in (("launches", "launch_bound"), ("MFU", "share_of_data_sheet")):
        shares = [seen.number(f"{side}_{name}") for side in ("baseline", "candidate")]
        texts = [MISSING if share is None else f"{share:.1%}" for share in shares]
        text += f", {what} {' -> '.join(texts)}" if any(shares) else ""
    spent = {name: seen.number(name) for name in record.metrics if "spent_" in name}
    times = {"compile": seen.compile_s, **spent}
    return text + "".join(f", {name} {value:.1f}" for name, value in times.items() if value is not None)


def measured(item: Item, kept: Kept, watch: Watch, executor: Executor, alarm: Alarm) -> None:
    """The item's records. ``Over``: its time was over before they came."""
    began, limit = watch.clock(), watch.limit_s(item)

    def stop() -> bool:
        return alarm.quits or watch.left() < STOP_S or watch.clock() - began > limit

    alarm.within(max(0.1, min(watch.left() - END_S, limit + GRACE_S)))
    if not item.jobs:
        _tested(item, kept, limit)
    work = []
    for part in kept.missing(item):
        protocol = replace(part.job.protocol, timeout_s=limit)
        attempt = replace(part.attempt, job=replace(part.job, protocol=protocol))
        work.append(replace(part, attempt=attempt))
    with closing(executor.run(work, kept, stop)) as events:
        for event in events:
            if isinstance(event, Record):
                late = event.status is Status.TIMEOUT and watch.left() < STOP_S
                with alarm.writing():
                    if not late:  # it had not the time that it needs: another sitting measures it
                        kept.run.append(event)
                    kept.say(told(event))


def _tested(item: Item, kept: Kept, limit_s: float) -> None:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", "tests/gpu", *item.tests]
    path = kept.scratch / "cases" / TESTS
    partial = path.with_suffix(".partial")
    with partial.open("wb") as output:
        env = {**os.environ, "GPU_TESTS_ON": kept.run.jobs()[0].device}
        subprocess.run(words, cwd=ROOT, env=env, stdout=output, stderr=output, timeout=limit_s, check=False)
    kept.say(f"  {partial.read_text(errors='replace').strip().rpartition(chr(10))[2]}")
    partial.replace(path)


def sit(planned: Sequence[Item], kept: Kept, watch: Watch, executor: Executor, alarm: Alarm) -> None:
    """Measures what is missing and fits, in order; each item once."""
    waiting = [item for item in planned if kept.open(item)]
    while (item := watch.fitting(waiting)) is not None and not alarm.quits:
        waiting.remove(item)
        began = watch.clock()
        kept.say(f"{item.name}: {item.expected_s:.0f} s are expected, {watch.left():.0f} are left")
        try:
            measured(item, kept, watch, executor, alarm)
        except Over:
            kept.say("  its time was over")
        except Exception as error:  # the other items go on
            kept.say(f"  {type(error).__name__}: {error}")
        alarm.within(0)
        with alarm.writing():
            kept.say(f"  {watch.clock() - began:.1f} s" + (", not complete" if kept.open(item) else ""))
            kept.replace_all()
    for item in waiting:
        kept.say(f"{item.name}: another time, {item.expected_s:.0f} s are expected")


def looked_at(device: str) -> tuple[dict[str, Any], str]:
    """What ``sanity.py`` says, and all of it with what commands say meanwhile."""
    words = [sys.executable, "-m", "tests.gpu.sanity", device]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as looking:
        facts = "".join(f"# {' '.join(command)}\n{_output(command)}" for command in COMMANDS)
        timer = threading.Timer(SANITY_S, looking.kill)
        timer.start()
        output, errors = looking.communicate()
        timer.cancel()
    try:
        seen: dict[str, Any] = json.loads(output.strip().rpartition("\n")[2])
    except ValueError:
        seen = {"wrong": [], "slow": [f"the device gives no answer, stopped: {errors.strip()[-300:]}"]}
    return seen, f"# {' '.join(words)}\n{json.dumps(seen, indent=1)}\n{errors}{facts}"


def _output(command: Sequence[str]) -> str:
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=SANITY_S / 4, check=False)
        return said.stdout + said.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"


def warmed(pool: HostPool, job: Job) -> None:
    """Starts the host of all jobs, which imports torch meanwhile."""
    variables = Workers(pool=pool).variables(job, None)
    pool.give_back(sys.executable, variables, pool.take(sys.executable, variables))


def folder_of(options: argparse.Namespace, jobs: Sequence[Job], name: str | None) -> RunFolder:
    """A new folder, or that of ``--resume`` with the files that are elsewhere. ``name``: of the device."""
    path: Path = options.output_dir
    if options.resume is None:
        return RunFolder.create(path, jobs, sys.argv)
    places = map(Path, (path, options.resume or path, options.copy_to or path))
    source = next((place for place in places if (place / RUN).is_file()), None)
    if source is None:
        raise UsageError(
            f"--resume: there is no {RUN} in {options.resume or path}; give the folder of a card"
        )
    if source != path:
        copied(source, path)
    folder = RunFolder.reopen("--resume", path)
    folder.records_path.touch()
    facts: set[tuple[str, Scalar]] = {(job.device, name) for job in folder.jobs()}
    facts |= {(record.job.device, record.environment.get("device_name")) for record in folder.read().records}
    others = facts - {(jobs[0].device, name), (jobs[0].device, None)}
    if others:
        there, here = (" ".join(map(str, fact)) for fact in (others.pop(), (jobs[0].device, name)))
        raise UsageError(f"--resume: {path} is of {there}, and this is {here}; name a new folder")
    return folder


def main(words: Sequence[str]) -> int:
    began = time.monotonic() - (time.time() - psutil.Process().create_time())
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    place = Path(os.environ.get("OUT") or ROOT / "logs" / f"card-{stamp}")
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.card", usage=__doc__)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--devices", default="cuda")
    parser.add_argument("--output-dir", type=Path, default=place)
    parser.add_argument("--copy-to", type=Path)
    parser.add_argument("--resume", nargs="?", const="")
    options = parser.parse_args(words)
    watch = Watch(end=began + options.seconds)
    backstop = threading.Timer(max(1.0, watch.left() - 0.5), os._exit, (1,))
    backstop.daemon = True
    backstop.start()
    try:
        return sat(options, watch)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Over:
        return 1
    finally:
        backstop.cancel()


def sat(options: argparse.Namespace, watch: Watch) -> int:
    """The exit code of a whole sitting."""
    planned, alarm = items(options.devices), Alarm()
    jobs = [job for item in planned for job in item.jobs]
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, alarm.ring)
    with HostPool() as pool, tempfile.TemporaryDirectory(prefix="card-") as scratch, ExitStack() as stack:
        warmed(pool, jobs[0])
        seen, facts = looked_at(options.devices)
        if "missing" in seen:
            raise UsageError(f"--devices: {options.devices} is not there ({seen['missing']})")
        run = folder_of(options, jobs, seen.get("name"))
        torn = stack.enter_context(run.claimed())
        (Path(scratch) / "cases").mkdir()
        if (run.path / CASES).exists():
            stack.enter_context(tarfile.open(run.path / CASES)).extractall(scratch, filter="data")
        said, earlier = (
            [path.read_text()] if path.exists() else [] for path in (run.path / CARD, run.path / FACTS)
        )
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_whole(run.path / FACTS, "".join((*earlier, f"# {now}\n", facts)).encode())
        kept = Kept(run=run, scratch=Path(scratch), copy_to=options.copy_to, said=said)
        for line in filter(None, (f"# {now} {seen.get('name')}", torn, *seen["wrong"], *seen["slow"])):
            kept.say(line)
        if not seen["slow"]:
            sit(planned, kept, watch, LocalExecutor(job_command, hosts=pool), alarm)
        passed = [record.status.passed for record in run.read().records]
        kept.say(f"{len(passed)} records, {sum(passed)} pass; {watch.left():.0f} s are left")
        kept.replace_all()
    return 0 if all(passed) and not seen["slow"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
