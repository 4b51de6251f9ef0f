"""Runs jobs on a cluster's node and reports them in messages of plain JSON values.

    {"activity": [phase, variant, rounds]}   {"rounds": 12, "pairs": {...}}   {"record": {...}}
    {"waits": true}   {"ended": true}

Each message has ``of``, the place of its job in the order. It may also have ``output``: what the job's model
printed since the previous message. Several jobs of an order prepare side by side and are timed one after
another (``executors.gate``), as on the runner's own machine.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from harness.worker.status_page import Activity
from runner.engine import Gate
from runner.engine.executors import Doing, Event, Started, Stop, Timed, Waits, Work
from runner.engine.executors.local import JobRecords, Lanes, Watch
from runner.engine.executors.memory import FreeMemory
from runner.engine.launch import measure_job

NEWS_S = 2.0  # at most one activity message in this time: messages disturb the measurement
LONGEST_OUTPUT = 1 << 18  # characters of a message's output; the middle of a longer output is left out

Message = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Ordered:
    """One job of an order, and what was last told of it."""

    place: int
    work: Work
    log_name: str
    commands: Mapping[str, str]
    log: Path
    output: _Output
    last_news: float
    last_activity: Activity = field(default_factory=Activity)

    def command(self, _: Job, candidates: Sequence[str]) -> str:
        """The command to measure this candidate again, which came with the order."""
        return self.commands.get(candidates[0], "")


class NodeJobs:
    """The jobs of one order, on this machine. ``stop`` and ``abandon`` may be called from other threads.

    Up to ``ahead`` of them prepare side by side. A node gets one order at a time, unless jobs share it by
    --threads: then no other job of the run disturbs the job that is timed.
    """

    def __init__(
        self,
        order: Mapping[str, Any],
        measure: JobRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs: list[Mapping[str, Any]] = order["jobs"]
        self._ahead: int = order["ahead"]
        self._path: str = order.get("path", "")
        self._measure = measure
        self._clock = clock
        self._stop = threading.Event()
        self._abandoned = threading.Event()

    def stop(self) -> None:
        """Ends the jobs after the current rounds."""
        self._stop.set()

    def abandon(self) -> None:
        """Ends the jobs' workers at once."""
        self._abandoned.set()

    def messages(self) -> Generator[Message, None, None]:
        """Runs the jobs. The first message of each says that it has started."""
        with tempfile.TemporaryDirectory(prefix="torchduet-", ignore_cleanup_errors=True) as folder:
            ordered = [self._ordered(place, Path(folder)) for place in range(len(self._jobs))]
            by_key = {one.work.job.key: one for one in ordered}
            memory = FreeMemory(ordered[0].work.job.protocol.max_memory_bytes)
            lanes = Lanes(
                self._measure or self._records(by_key),
                self._stop.is_set,
                self._abandoned,
                ahead=self._ahead,
                room=memory.suffices,
            )
            with closing(lanes.run([[one.work for one in ordered]])) as events:
                for event in events:
                    one = by_key[event.job.key]
                    if (said := self._said(event, one)) is not None:
                        yield {"of": one.place, **said, "output": said.get("output", "") + one.output.news()}

    def _ordered(self, place: int, folder: Path) -> _Ordered:
        asked = self._jobs[place]
        log = folder / f"{place}.log"
        log.touch()
        return _Ordered(
            place=place,
            work=Work(job=from_json(Job, asked["job"]), candidates=tuple(asked["candidates"])),
            log_name=asked["log"],
            commands=asked.get("reproduce", {}),
            log=log,
            output=_Output(log),
            last_news=self._clock(),
        )

    def _said(self, event: Event, one: _Ordered) -> Message | None:
        """The message of an event; None if it is no news."""
        if isinstance(event, Doing):
            activity = event.activity
            if activity == one.last_activity or self._clock() - one.last_news < NEWS_S:
                return None
            one.last_activity, one.last_news = activity, self._clock()
            return {"activity": [activity.phase, activity.variant, activity.rounds]}
        if isinstance(event, Timed):
            one.last_news = self._clock()
            return {"rounds": event.done, "pairs": to_json(event.pairs)}
        if isinstance(event, Record):
            return {"record": to_json(_pinned(event))}
        if isinstance(event, Started):
            return {"activity": ["start", "", 0], "output": f"# on {os.uname().nodename}\n"}
        return {"waits" if isinstance(event, Waits) else "ended": True}

    def _records(self, ordered: Mapping[str, _Ordered]) -> JobRecords:
        def measure(work: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
            one = ordered[work.job.key]
            base = node_environment(os.environ, _started_with(), self._path)
            return measure_job(
                work.job,
                work.candidates,
                watch,
                stop,
                log=one.log,
                log_name=one.log_name,
                reproduce=one.command,
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
