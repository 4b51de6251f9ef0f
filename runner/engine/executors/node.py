"""Runs one job on a cluster's node and reports it in messages of plain JSON values.

    {"activity": [phase, variant, rounds]}   {"rounds": 12, "pairs": {...}}   {"record": {...}}

A message may also have ``output``: what the model's code printed since the previous message.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from harness.worker.status_page import Activity
from runner.engine import Gate
from runner.engine.executors import Doing, Stop, Timed, Work
from runner.engine.executors.local import JobRecords, Lanes, Watch
from runner.engine.launch import measure_job

NEWS_S = 2.0  # at most one activity message in this time: messages disturb the measurement
LONGEST_OUTPUT = 1 << 18  # characters of a message's output; the middle of a longer output is left out

Message = dict[str, Any]


class NodeJob:
    """One job on this machine. ``stop`` and ``abandon`` may be called from other threads."""

    def __init__(
        self,
        order: Mapping[str, Any],
        measure: JobRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        job = from_json(Job, order["job"])
        self._work = Work(job=job, candidates=tuple(order["candidates"]))
        self._log_name: str = order["log"]
        self._commands: Mapping[str, str] = order.get("reproduce", {})
        self._path: str = order.get("path", "")
        self._measure = measure
        self._clock = clock
        self._stop = threading.Event()
        self._abandoned = threading.Event()
        self._last_news = clock()
        self._last_activity = Activity()

    def stop(self) -> None:
        """Ends the job after its current rounds."""
        self._stop.set()

    def abandon(self) -> None:
        """Ends the job's worker at once."""
        self._abandoned.set()

    def messages(self) -> Generator[Message, None, None]:
        """Runs the job. The first message says that it has started."""
        with tempfile.TemporaryDirectory(prefix="torchduet-", ignore_cleanup_errors=True) as folder:
            log = Path(folder) / "output.log"
            log.touch()
            output = _Output(log)
            yield {"activity": ["start", "", 0], "output": f"# on {os.uname().nodename}\n"}
            lanes = Lanes(self._measure or self._records(log), self._stop.is_set, self._abandoned)
            with closing(lanes.run([[self._work]])) as events:
                for event in events:
                    if isinstance(event, Record):
                        yield {"record": to_json(_pinned(event)), "output": output.news()}
                    elif isinstance(event, Timed):
                        self._last_news = self._clock()
                        yield {"rounds": event.done, "pairs": to_json(event.pairs), "output": output.news()}
                    elif isinstance(event, Doing) and self._is_news(event.activity):
                        activity = event.activity
                        shown = [activity.phase, activity.variant, activity.rounds]
                        yield {"activity": shown, "output": output.news()}
            if rest := output.news():
                yield {"output": rest}

    def _command(self, _: Job, candidates: Sequence[str]) -> str:
        """The command to measure this candidate again, which came with the order."""
        return self._commands.get(candidates[0], "")

    def _is_news(self, activity: Activity) -> bool:
        if activity == self._last_activity or self._clock() - self._last_news < NEWS_S:
            return False
        self._last_activity, self._last_news = activity, self._clock()
        return True

    def _records(self, log: Path) -> JobRecords:
        def measure(work: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
            base = node_environment(os.environ, _started_with(), self._path)
            return measure_job(
                work.job,
                work.candidates,
                watch,
                stop,
                log=log,
                log_name=self._log_name,
                reproduce=self._command,
                base=base,
                gate=gate,
            )

        return measure


def _pinned(record: Record) -> Record:
    """The record with the GPU that Ray assigned, also if the worker died before it could report it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return record
    return replace(record, environment={"env.CUDA_VISIBLE_DEVICES": visible, **record.environment})


def node_environment(current: Mapping[str, str], initial: Mapping[str, str], path: str) -> dict[str, str]:
    """The environment variables for a worker: ``current``, with ``path`` added to ``PYTHONPATH``.

    Ray sets ``OMP_NUM_THREADS`` to the number of assigned cores. This variable is removed unless the
    process was started with it (``initial``), so that eager has as many threads as without Ray.
    """
    environment = dict(current)
    if "OMP_NUM_THREADS" not in initial:
        environment.pop("OMP_NUM_THREADS", None)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (path, current.get("PYTHONPATH", "")) if part
    )
    return environment


def _started_with() -> dict[str, str]:
    try:
        text = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


class _Output:
    """Reads the workers' log while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def news(self) -> str:
        """What was written since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            part = log.read()
        self._read += len(part)
        text = part.decode(errors="replace")
        if len(text) <= LONGEST_OUTPUT:
            return text
        half = LONGEST_OUTPUT // 2
        return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
