"""The folder of one run: what is where, and that no two runs share one.

run.json          configuration and plan
records.jsonl     the truth
cases/<job key>/  job.json and output.log of each job
everything else   derived; --visualize-logs builds it again
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from runner.errors import UsageError
from runner.labels import plain
from runner.record_file import Records, append_record, mend_last_line, read_records, write_all
from runner.worker_process import GLIBC_SETTINGS

RECORDS = "records.jsonl"
RUN = "run.json"
OTHER_RUN = "--output-dir: {path} holds another run; name a new folder, or use --resume"
PARTIAL_PLAN = re.compile(r"\.run\.json\.\d+\.partial")
LONGEST_REASON = 200  # characters, of what is wrong with a damaged file


class RunFolder:
    """Paths and files of one run. Made by ``create`` or ``reopen``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def records_path(self) -> Path:
        return self.path / RECORDS

    @classmethod
    def create(
        cls,
        wanted: Path | None,
        jobs: Sequence[Job],
        command: Sequence[str],
        facts: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """A new folder, or an empty one; ``facts`` are added to its ``run.json``.

        ``UsageError`` for one that holds anything or cannot be written.
        """
        path = wanted or Path("logs") / _default_name(jobs)
        run = {"command": list(command), "created": _now(), "jobs": to_json(tuple(jobs)), **(facts or {})}
        try:
            path, made = _exactly(path) if wanted is not None else (_new_beside(path), True)
            folder = cls(path.resolve())
            try:
                _write_new(folder.path / RUN, json.dumps(run, indent=1).encode())
                folder.records_path.touch()
            except FileExistsError:
                raise UsageError(OTHER_RUN.format(path=path)) from None
            except OSError:
                folder._undo(remove_folder=made)
                raise
        except OSError as error:
            raise UsageError(f"--output-dir: {path} cannot be written ({error.strerror})") from None
        return folder

    def _undo(self, *, remove_folder: bool) -> None:
        """After the disk was too full for the plan: leaves what was found."""
        with contextlib.suppress(OSError):
            (self.path / RUN).unlink(missing_ok=True)
            if remove_folder:
                self.path.rmdir()

    @classmethod
    def reopen(cls, flag: str, path: Path) -> RunFolder:
        """An existing run. ``UsageError`` when there is none."""
        planned = flag == "--resume" and (path / RUN).is_file()  # killed before it had a file for records
        if not (path / RECORDS).is_file() and not planned:
            what = "there is no folder" if not path.is_dir() else f"there is no {RECORDS} in"
            raise UsageError(f"{flag}: {what} {path}; give the folder of a run")
        return cls(path.resolve())

    def jobs(self) -> tuple[Job, ...]:
        """The plan of the run. ``UsageError`` when ``run.json`` cannot be read."""
        try:
            run = json.loads((self.path / RUN).read_text(encoding="utf-8"))
            return tuple(from_json(Job, job) for job in run["jobs"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            why = plain(str(error))[:LONGEST_REASON]
            raise UsageError(f"--resume: {self.path / RUN} cannot be read ({why}); start a new run") from None

    @contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Keeps other processes from measuring into this folder, and mends its records first.

        Gives the sentence of ``mend_last_line``. ``UsageError`` when another process measures here;
        ``OSError`` when the folder cannot be written.
        """
        with self.records_path.open("ab") as file:
            if not _locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                raise UsageError(f"--resume: another process measures into {self.path}; wait until it ends")
            for left in self.path.glob(f".{RUN}.*.partial"):
                left.unlink()  # of a run that was killed before it had a plan
            yield mend_last_line(self.records_path)

    def how_to_go_on(self) -> str:
        return f"go on with: python runner.py --resume {plain(shlex.quote(str(self.path)))}"

    def unwritable(self, error: OSError) -> UsageError:
        """The sentence for a disk that is full, read-only or gone."""
        what = f"{error.filename} cannot be used" if error.filename else "the run cannot go on"
        return UsageError(
            f"{plain(what)} ({error.strerror or error}); the records until here are safe: mend that, "
            f"then {self.how_to_go_on()}"
        )

    def read(self) -> Records:
        return read_records(self.records_path)

    def append(self, record: Record) -> None:
        """Adds a record for good. ``OSError`` when it cannot be written."""
        try:
            append_record(self.records_path, record)
        except OSError as error:
            error.filename = error.filename or str(self.records_path)
            raise

    def open_case(self, job: Job) -> Path:
        """Makes the job's folder with its job file; returns its log, whose first line says how to
        run the job by hand."""
        folder = self.path / "cases" / job.key
        folder.mkdir(parents=True, exist_ok=True)
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(to_json(job), indent=1), encoding="utf-8")
        log = folder / "output.log"
        if not log.exists():
            text = f"# by hand: {by_hand(job, job_file)}\n"
            if job.environments:
                text = "# each environment has a log of its own: envs/NAME/output.log\n"
            # a path need not be UTF-8: it is written as it is
            log.write_text(text, encoding="utf-8", errors="surrogateescape")
        return log

    def write_derived(self, files: Mapping[str, bytes]) -> None:
        """Writes derived files whole: a reader never sees half of one.

        ``UsageError`` when one cannot be written: the others of this call are then not written either.
        """
        try:
            with self._alone():
                for name, content in files.items():
                    if Path(name).name != name:
                        raise ValueError(f"{name!r} is not the name of a file in this folder")
                    write_whole(self.path / name, content)
        except OSError as error:
            raise UsageError(
                f"{plain(str(error.filename or self.path))} cannot be written ({error.strerror}); "
                f"the records are safe: mend that, then use --visualize-logs {shlex.quote(str(self.path))}"
            ) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time: two that write the same report would mix its halves."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            _locked(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def _exactly(path: Path) -> tuple[Path, bool]:
    """That folder, new or empty, and whether it is new. ``UsageError`` for one that holds anything."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"--output-dir: {path} is a file; name a new folder")
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    # a run that was killed before it had a plan has measured nothing
    held = [found.name for found in path.iterdir() if not PARTIAL_PLAN.fullmatch(found.name)]
    if RECORDS in held or RUN in held:
        raise UsageError(OTHER_RUN.format(path=path))
    if held:
        raise UsageError(f"--output-dir: {path} holds files already; name a new folder, or use --resume")
    return path, made


def _new_beside(wanted: Path) -> Path:
    """A folder by this name or, where runs began in the same second, with a number behind it."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    names = itertools.chain([wanted.name], (f"{wanted.name}-{number}" for number in itertools.count(2)))
    for path in map(wanted.with_name, names):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError  # the numbers do not end


def _write_new(path: Path, content: bytes) -> None:
    """A whole file on the disk that was not there before, or none. ``FileExistsError`` when it was."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with _written(partial, content, sync=True):
        try:
            path.hardlink_to(partial)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            partial.replace(path)


def write_whole(path: Path, content: bytes) -> None:
    """A whole file in place of the one before, which stays when there is no room."""
    partial = path.with_name(f".{path.name}.partial")
    with _written(partial, content, sync=False):
        partial.replace(path)


@contextmanager
def _written(path: Path, content: bytes, *, sync: bool) -> Iterator[None]:
    """A file that is gone afterwards, unless it has another name by then.

    It is made anew: nothing is ever written through a link that somebody put in its place.
    """
    path.unlink(missing_ok=True)
    try:
        with path.open("xb", buffering=0) as file:
            write_all(file, content)
            if sync:
                os.fsync(file.fileno())
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _locked(descriptor: int, how: int) -> bool:
    """Whether the file is now ours, until it is closed. Where a file system has no locks, it is."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def by_hand(job: Job, job_file: Path, python: str = "python") -> str:
    """The command that runs a job file in the foreground."""
    return f"{_settings(job)}{shlex.quote(python)} -m harness.worker --job {shlex.quote(str(job_file))}"


def _settings(job: Job) -> str:
    settings: dict[str, Any] = dict(GLIBC_SETTINGS)
    if job.protocol.threads is not None:
        settings["OMP_NUM_THREADS"] = job.protocol.threads
    return "".join(f"{name}={value} " for name, value in settings.items())


def _default_name(jobs: Sequence[Job]) -> str:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    suites = "+".join(dict.fromkeys(Path(job.case.suite).stem for job in jobs))
    dtypes = "+".join(dict.fromkeys(job.dtype for job in jobs))
    modes = "+".join(dict.fromkeys(job.case.mode.value for job in jobs))
    slug = re.sub(r"[^A-Za-z0-9_.+-]+", "_", f"{suites}-{modes}-{dtypes}")
    return f"{stamp}-{slug}"[:120]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
