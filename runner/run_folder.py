"""The folder of one run: what is where, and that no two runs share one.

run.json          configuration and plan
records.jsonl     the truth
cases/<job key>/  job.json and output.log of each job
everything else   derived; --visualize-logs builds it again
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from runner.errors import UsageError
from runner.record_file import Records, append_record, read_records
from runner.worker_process import GLIBC_SETTINGS

RECORDS = "records.jsonl"
RUN = "run.json"


class RunFolder:
    """Paths and files of one run. Made by ``create`` or ``reopen``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def records_path(self) -> Path:
        return self.path / RECORDS

    @classmethod
    def create(cls, wanted: Path | None, jobs: Sequence[Job], command: Sequence[str]) -> RunFolder:
        """A new folder, or an empty one. ``UsageError`` for one that holds anything or cannot be written."""
        path = wanted or Path("logs") / _default_name(jobs)
        try:
            if path.exists() and not path.is_dir():
                raise UsageError(f"--output-dir: {path} is a file; name a new folder")
            if path.exists() and any(path.iterdir()):
                what = "another run" if (path / RECORDS).exists() else "files already"
                raise UsageError(f"--output-dir: {path} holds {what}; name a new folder, or use --resume")
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path.resolve())
            run = {"command": list(command), "created": _now(), "jobs": to_json(tuple(jobs))}
            (folder.path / RUN).write_text(json.dumps(run, indent=1), encoding="utf-8")
            folder.records_path.touch()
        except OSError as error:
            raise UsageError(f"--output-dir: {path} cannot be written ({error.strerror})") from None
        return folder

    @classmethod
    def reopen(cls, flag: str, path: Path) -> RunFolder:
        """An existing run. ``UsageError`` when there is none."""
        if not (path / RECORDS).is_file():
            what = "there is no folder" if not path.is_dir() else f"there is no {RECORDS} in"
            raise UsageError(f"{flag}: {what} {path}; give the folder of a run")
        return cls(path.resolve())

    def jobs(self) -> tuple[Job, ...]:
        """The plan of the run. ``UsageError`` when ``run.json`` cannot be read."""
        try:
            run = json.loads((self.path / RUN).read_text(encoding="utf-8"))
            return tuple(from_json(Job, job) for job in run["jobs"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"--resume: {self.path / RUN} cannot be read ({error}); start a new run"
            ) from None

    def read(self) -> Records:
        return read_records(self.records_path)

    def append(self, record: Record) -> None:
        append_record(self.records_path, record)

    def open_case(self, job: Job) -> Path:
        """Makes the job's folder with its job file; returns its log, whose first line says how to
        run the job by hand."""
        folder = self.path / "cases" / job.key
        folder.mkdir(parents=True, exist_ok=True)
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(to_json(job), indent=1), encoding="utf-8")
        log = folder / "output.log"
        if not log.exists():
            log.write_text(
                f"# by hand: {_settings(job)}python -m harness.worker --job {job_file}\n", encoding="utf-8"
            )
        return log

    def write_derived(self, files: Mapping[str, bytes]) -> None:
        """Writes derived files whole: a reader never sees half of one."""
        for name, content in files.items():
            target = self.path / name
            partial = target.with_name(f".{target.name}.partial")
            partial.write_bytes(content)
            partial.replace(target)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def _settings(job: Job) -> str:
    settings: dict[str, Any] = dict(GLIBC_SETTINGS)
    if job.protocol.threads is not None:
        settings["OMP_NUM_THREADS"] = job.protocol.threads
    return "".join(f"{name}={value} " for name, value in settings.items())


def _default_name(jobs: Sequence[Job]) -> str:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    suites = "+".join(dict.fromkeys(Path(job.case.suite).stem for job in jobs))
    dtypes = "+".join(dict.fromkeys(job.dtype for job in jobs))
    slug = re.sub(r"[^A-Za-z0-9_.+-]+", "_", f"{suites}-{jobs[0].case.mode.value}-{dtypes}")
    return f"{stamp}-{slug}"[:120]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
