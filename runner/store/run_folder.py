"""The folder of one run: its files, and the rule that no two runs share a folder.

run.json          configuration and plan
records.jsonl     the truth
cases/<job key>/  job.json and output.log of each job
everything else   derived; --visualize-logs builds it again
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from harness.worker.limits import GLIBC_SETTINGS, thread_variables
from runner.errors import UsageError
from runner.names import counted, plain, reason
from runner.store import record_file
from runner.store.invocation import WORKER, program
from runner.store.record_file import ENDING, Records, opened, read_records, stored, whole

RUN = "run.json"
RECORDS = "records.jsonl"
CASES = "cases"
THREADS = "threads"  # in run.json: by what torch chooses them
FILES = "own_files"  # in run.json
NO_PLAN = "it is no plan, or was cut short"
OTHER_RUN = "--output-dir: {path} holds another run; name a new folder, or use --resume"
T = TypeVar("T")

PARTIAL_PLAN = re.compile(r"\.run\.json\.\d+\.partial")


class RunFolder:
    """Paths and files of one run. ``more``: the flags beside ``--resume`` to go on as it began."""

    def __init__(self, path: Path, more: Sequence[str] = ()) -> None:
        self.path, self.records_path = path, path / RECORDS
        self._more = more

    @classmethod
    def create(
        cls,
        wanted: Path | None,
        jobs: Sequence[Job],
        command: Sequence[str],
        facts: Mapping[str, Any] | None = None,
        more: Sequence[str] = (),
    ) -> RunFolder:
        """A new or empty folder, or ``UsageError``. ``facts`` are added to its ``run.json``."""
        path = wanted or Path("logs") / _default_name(jobs)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        run = {"command": list(command), "created": created, "jobs": to_json(tuple(jobs)), **(facts or {})}
        try:
            path, is_new = _exactly(path) if wanted is not None else (_new_beside(path), True)
            folder = cls(path.resolve(), more)
            try:
                _write_new(folder.path / RUN, json.dumps(run, indent=1).encode())
                folder.records_path.touch()
            except (FileExistsError, FileNotFoundError):  # it was claimed: our unfinished plan was removed
                raise UsageError(OTHER_RUN.format(path=path)) from None
            except OSError:  # the disk was too full for the plan
                with contextlib.suppress(OSError):
                    (folder.path / RUN).unlink(missing_ok=True)
                    if is_new:
                        folder.path.rmdir()
                raise
        except OSError as error:
            raise UsageError(f"--output-dir: {path} cannot be written ({error.strerror})") from None
        return folder

    @classmethod
    def reopen(cls, flag: str, path: Path, more: Sequence[str] = ()) -> RunFolder:
        """An existing run. Raises ``UsageError`` if there is none."""
        packed = stored(path / RECORDS)
        if flag == "--resume" and packed.suffix == ENDING:
            raise UsageError(f"--resume: {path} is packed; first: gunzip {shlex.quote(str(packed))}")
        planned = flag == "--resume" and (path / RUN).is_file()  # the run was killed before its first record
        if not packed.is_file() and not planned:
            what = f"{RECORDS} in" if path.is_dir() else "folder"
            raise UsageError(f"{flag}: there is no {what} {path}; give the folder of a run")
        return cls(path.resolve(), more)

    def jobs(self) -> tuple[Job, ...]:
        """The plan of the run. ``UsageError`` when ``run.json`` cannot be read."""
        try:
            return jobs_in(read_run_json(self.path))
        except (OSError, ValueError) as error:
            why = reason(error.strerror if isinstance(error, OSError) else error)
            raise UsageError(f"--resume: {self.path / RUN} cannot be read ({why}); start a new run") from None

    @contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Locks the folder, and ends an incomplete last line of the records; yields a sentence about it."""
        with self.records_path.open("ab") as file:
            if not locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                raise UsageError(f"--resume: another process measures into {self.path}; wait until it ends")
            for left in self.path.glob(f".{RUN}.*.partial"):
                left.unlink(missing_ok=True)  # of a run that was killed before it had a plan, or comes second
            yield record_file.end_last_line(self.records_path)

    def told(self, name: str) -> list[str]:
        """The words of a list in ``run.json``."""
        return listed(read_run_json(self.path), name, str)

    def edited(self, jobs: Sequence[Job]) -> list[str]:
        """A sentence on each of the user's files that is not what it was when the run began."""
        then = self.told(FILES)
        files = [file.rpartition(" ")[0] for file in own_files(jobs) if file not in then] if then else []
        why = "was edited after the run began: the results are of two versions of it"
        return [f"--resume: {file} {why}" for file in files]

    def pursued(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Without the jobs that are measured and edited: a further process would be of another model."""
        if not self.edited(jobs):
            return tuple(jobs)
        processes = self.read().processes if self.records_path.exists() else ()
        known = {(record.job.key, record.candidate) for record in processes}
        whole = {job.key for job in jobs if all((job.key, name) in known for name in job.candidates)}
        return tuple(job for job in jobs if job.key not in whole or not self.edited((job,)))

    def how_to_go_on(self) -> str:
        return f"go on with: {plain(shlex.join((*program(), '--resume', str(self.path), *self._more)))}"

    def unwritable(self, error: OSError) -> UsageError:
        """The sentence for a disk that is full, read-only or gone."""
        what = f"{error.filename} cannot be used" if error.filename else "the run cannot go on"
        what = f"{plain(what)} ({error.strerror or error})"
        if not self.records_path.exists():
            return UsageError(f"{what}; {RECORDS} was removed: measure again in a new folder")
        return UsageError(f"{what}; the records so far are safe: correct this, then {self.how_to_go_on()}")

    def read(self) -> Records:
        return read_run(self.records_path)

    def append(self, record: Record) -> None:
        """Appends a record and syncs it to the disk. ``OSError`` if it cannot be written."""
        try:
            self.records_path.stat()  # a folder that was deleted during the run is not made again
            record_file.append_record(self.records_path, record)
        except OSError as error:
            error.filename = error.filename or str(self.records_path)
            raise

    def open_case(self, job: Job) -> Path:
        """The job's folder, as ``write_case`` makes it. Returns the log."""
        self.records_path.stat()  # as in ``append``
        own = "each environment has a log of its own: envs/NAME/output.log" if job.environments else ""
        return write_case(self.path / CASES / job.key, job, own)

    def write_derived(self, files: Mapping[str, bytes]) -> None:
        """Writes derived files, each whole. A ``UsageError`` leaves its file and the later ones as before."""
        try:
            with _alone_in(self.path):  # two processes would mix the files of a report
                for name, content in files.items():
                    write_whole(self.path / name, content)
        except OSError as error:
            raise UsageError(
                f"{plain(str(error.filename or self.path))} cannot be written ({error.strerror}); "
                f"the records are safe: correct this, then use --visualize-logs {shlex.quote(str(self.path))}"
            ) from None

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def read_run_json(folder: Path) -> dict[str, Any]:
    """The content. ``ValueError`` says in plain words why there is none; ``OSError``: it cannot be read."""
    try:
        with opened(folder / RUN) as file:
            run = json.loads(file.read().decode())
    except (ValueError, RecursionError):
        raise ValueError(NO_PLAN) from None
    if not isinstance(run, dict) or not isinstance(run.get("jobs"), list):
        raise ValueError(NO_PLAN)  # noqa: TRY004 - what is promised
    return run


def listed(run: Mapping[str, Any], name: str, kind: type[T]) -> list[T]:
    """The items of a list in ``run.json`` that are of this type."""
    value = run.get(name)
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


def jobs_in(run: Mapping[str, Any], name: str = "jobs") -> tuple[Job, ...]:
    """The jobs of this run; ``plan``: of the whole plan, of which this run may be a part."""
    return from_json(tuple[Job, ...], run[name])


def read_run(path: Path) -> Records:
    """The records of a run, its jobs in the order of the plan; without a plan, in which they ended."""
    content = read_records(path)
    if path.name.removesuffix(ENDING) != RECORDS:
        return content
    run: dict[str, Any] = {}
    places: dict[tuple[str, ...], int] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        run = read_run_json(path.parent)
        # parsing whole jobs would take ten times as long
        for job in run["jobs"]:
            case = job["case"]
            named = case["suite"], case["name"], case["mode"], job["device"], job["dtype"]
            places.setdefault(named, len(places))

    def place(record: Record) -> int:
        job, case = record.job, record.job.case
        named = case.suite, case.name, case.mode.value, job.device, job.dtype
        return places.get(named, len(places))

    content = replace(content, records=tuple(sorted(content.records, key=place)))
    with contextlib.suppress(ValueError, KeyError):
        jobs = jobs_in(run) if content.damage else ()
        planned = {(job.key, candidate) for job in jobs for candidate in job.candidates}
        if content.damage and planned <= whole(content.records):  # what the line held was measured again
            more = f" ({counted(content.unused, 'line')} in all)" if content.unused > 1 else ""
            replaced = f"{content.damage[0]}{more}; every planned result has a record"
            return Records(records=content.records, replaced=replaced)
    return content


def source_of(suite: str) -> Path:
    """The user's file: of FILE.py, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION. A bundled suite is none."""
    place, _, _ = suite.rpartition(":")
    return Path(place.replace(".", "/") + ".py" if place and not place.endswith(".py") else place or suite)


def own_files(jobs: Sequence[Job]) -> list[str]:
    """The user's own files, each with a digest of what it holds."""
    named = ((job.case.suite, job.protocol.optimizer, *job.own_compilers.values()) for job in jobs)
    paths = sorted({source_of(source) for sources in named for source in sources})
    files = [path for path in paths if path.suffix == ".py" and path.is_file()]
    return [f"{path} {sha256(path.read_bytes()).hexdigest()}" for path in files]


def new_folder(wanted: Path | None, what: str) -> Path:
    """The requested folder, or a new folder under ``logs``. ``UsageError`` if the folder is not empty."""
    path = wanted or Path("logs") / f"{_stamp()}-{what}"
    try:
        return _new_beside(path) if wanted is None else _exactly(path)[0]
    except OSError as error:
        raise UsageError(f"--output-dir: {path} cannot be used ({error.strerror})") from None


def _exactly(path: Path) -> tuple[Path, bool]:
    """The folder, and whether it was made here. ``UsageError`` for a folder that is not empty."""
    is_new = not path.exists()
    if not is_new and not path.is_dir():
        raise UsageError(f"--output-dir: {path} is a file; name a new folder")
    if is_new and path.is_symlink():
        gone = "is a link to a folder that is not there"
        raise UsageError(f"--output-dir: {path} {gone}; make it, or name another")
    path.mkdir(parents=True, exist_ok=True)
    # a run that was killed before it had a plan has measured nothing
    held = [file.name for file in path.iterdir() if not PARTIAL_PLAN.fullmatch(file.name)]
    if {RECORDS, RUN} & {name.removesuffix(ENDING) for name in held}:
        raise UsageError(OTHER_RUN.format(path=path))
    if held:
        raise UsageError(f"--output-dir: {path} holds files already; name a new folder, or use --resume")
    return path, is_new


def _new_beside(wanted: Path) -> Path:
    """A new folder of this name. Runs that begin in the same second get a number after the name."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    path, number = wanted, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            path = wanted.with_name(f"{wanted.name}-{(number := number + 1)}")
        else:
            return path


def _write_new(path: Path, content: bytes) -> None:
    """Writes and syncs a new file, completely or not at all. ``FileExistsError`` if the file exists."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with _written(partial, content, sync=True):
        try:
            path.hardlink_to(partial)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            partial.replace(path)


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file by a complete new file. If the disk is full, the old file stays."""
    partial = path.with_name(f".{path.name}.partial")
    with _written(partial, content, sync=False):
        partial.replace(path)


def write_asked(flag: str, path: Path, content: bytes) -> None:
    """``write_whole`` for a file that the user asked for. ``UsageError`` if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            write_whole(path, content)
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be written ({error.strerror})") from None


@contextmanager
def _alone_in(folder: Path) -> Iterator[bool]:
    """Waits until no other process writes derived files into the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield locked(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


@contextmanager
def _written(path: Path, content: bytes, *, sync: bool) -> Iterator[None]:
    """A temporary file, removed at the end unless renamed. It is new: nothing is written through a link."""
    path.unlink(missing_ok=True)
    try:
        with path.open("xb", buffering=0) as file:
            record_file.write_all(file, content)
            if sync:
                os.fsync(file.fileno())
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def locked(descriptor: int, how: int) -> bool:
    """Whether this process has the lock until the file is closed. True on a file system without locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def write_case(folder: Path, job: Job, first_line: str = "", python: str = "python") -> Path:
    """Makes the folder with the job file. Returns the log; its first line says how to run the job by hand."""
    folder.mkdir(parents=True, exist_ok=True)
    job_file, log = folder / "job.json", folder / "output.log"
    job_file.write_text(json.dumps(to_json(job), indent=1), encoding="utf-8")
    if not log.exists():
        malloc = {} if job.extras.allocator == "system" else GLIBC_SETTINGS
        variables = {**malloc, **thread_variables(job.protocol.threads)}
        settings = "".join(f"{name}={value} " for name, value in variables.items())
        command = f"{settings}{shlex.quote(python)} -m {WORKER} --job {shlex.quote(str(job_file))}"
        # a path need not be UTF-8: it is written as it is
        text = f"# {first_line or f'by hand: {command}'}\n"
        log.write_text(text, encoding="utf-8", errors="surrogateescape")
    return log


def _default_name(jobs: Sequence[Job]) -> str:
    words = zip(*((Path(job.case.suite).stem, job.case.mode.value, job.dtype) for job in jobs), strict=True)
    slug = re.sub(r"[^A-Za-z0-9_.+-]+", "_", "-".join("+".join(dict.fromkeys(kind)) for kind in words))
    return f"{_stamp()}-{slug}"[:120]


def _stamp() -> str:
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
