"""What runs on a cluster's node: one job, told about in messages that are plain JSON values.

    {"activity": [phase, variant, rounds]}   {"rounds": 12, "pairs": {...}}   {"record": {...}}

Every message may bring ``output``: what the model's code printed since the one before.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import Job, Record
from harness.status_page import Activity
from runner.executors import Doing, Stop, Timed, Work
from runner.executors.local import JobRecords, Lanes, Watch, worker_records

NEWS_S = 2.0  # a message costs the node time that it is being measured in: no more than one in so long
LONGEST_OUTPUT = 1 << 18  # characters of a message's output; the middle of a longer one is left out

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
        """Runs the job: one message to say that it began, then what happens."""
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

    def _is_news(self, activity: Activity) -> bool:
        if activity == self._last_activity or self._clock() - self._last_news < NEWS_S:
            return False
        self._last_activity, self._last_news = activity, self._clock()
        return True

    def _records(self, log: Path) -> JobRecords:
        def measure(work: Work, watch: Watch, stop: Stop) -> Iterator[Record]:
            base = node_environment(os.environ, _started_with(), self._path)
            return worker_records(work, watch, stop, log=log, log_name=self._log_name, base=base)

        return measure


def _pinned(record: Record) -> Record:
    """With the GPU that the job was given, even where the worker died too early to say so itself."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return record
    return replace(record, environment={"env.CUDA_VISIBLE_DEVICES": visible, **record.environment})


def node_environment(current: Mapping[str, str], initial: Mapping[str, str], path: str) -> dict[str, str]:
    """The environment for a worker: this process's, plus ``path`` to look for modules in.

    Without ``OMP_NUM_THREADS``, unless the process was started with it (``initial``): Ray sets that
    itself, by what it lends, and eager would have other threads than on the same machine without Ray.
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
    """The growing log of the workers, read bit by bit."""

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
