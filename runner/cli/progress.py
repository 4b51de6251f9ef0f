"""Progress of a run: a bar on a terminal, lines in a log or a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich import progress as bar
from rich.console import Console
from rich.markup import escape

from harness.schema import Job, Record, Status
from runner.analysis.digits import estimate_text
from runner.engine import Pairs
from runner.engine.executors import Doing, Event, JobEnded, Previewed, Started, Timed
from runner.names import plain

LONGEST_REASON = 160  # characters; the record has the full text
DAY_S = 86_400  # the time left is estimated from all jobs of so long
SHOWN_TOGETHER = 3  # running jobs that fit into a line
QUIET_S = 30.0  # a log without a line for longer looks like a run that hangs


class View(Protocol):
    """Receives every event of a run. Several jobs may run at once."""

    def event(self, event: Event) -> None: ...


@contextmanager
def view(console: Console, jobs: int, begun: int = 0, *, here: bool = False) -> Iterator[View]:
    """A bar or lines, as suits the console. ``begun``: of the jobs, before this pass.

    ``here``: this process measures; its output stays its own.
    """
    if not console.is_terminal:
        yield PlainView(console, jobs, begun)
        return
    # few refreshes: drawing takes CPU time from the measured worker
    with bar.Progress(
        bar.TextColumn("{task.description}"),
        bar.BarColumn(bar_width=24),
        bar.MofNCompleteColumn(),
        bar.TimeElapsedColumn(),
        bar.TimeRemainingColumn(),
        console=console,
        refresh_per_second=2,
        speed_estimate_period=DAY_S,
        transient=True,
        auto_refresh=not here,
        redirect_stdout=not here,
        redirect_stderr=not here,
    ) as progress:
        yield BarView(progress, jobs, begun, here=here)


class BarView:
    """A bar over the jobs, with the current job, phase, rounds and estimates."""

    def __init__(self, progress: bar.Progress, jobs: int, begun: int = 0, *, here: bool = False) -> None:
        self._progress, self._here = progress, here
        self._task = progress.add_task("planning", total=jobs, completed=begun)
        self._phases: dict[str, str] = {}  # of the running jobs
        self._estimates: dict[str, str] = {}

    def event(self, event: Event) -> None:
        if isinstance(event, Record):
            if event.status.counted:
                line = f"{_what(event.job)}: {outcome(event)}"
                style = None if event.status.passed else "yellow"
                self._progress.console.print(escape(plain(line)), style=style, highlight=False)
            return
        if isinstance(event, Previewed):
            line = plain(f"{_what(event.job)}: {previewed(event)}")
            self._progress.console.print(escape(line), style="dim", highlight=False)
            return
        key = event.job.key
        if isinstance(event, JobEnded):
            self._phases.pop(key, None)
            self._estimates.pop(key, None)
            self._progress.update(self._task, advance=1)
            return
        if isinstance(event, Timed):
            self._estimates[key] = estimates(event.pairs)
        self._phases[key] = f"{_what(event.job)}  {_phase(event)}"
        self._progress.update(self._task, description=escape(plain(self._text())), refresh=self._here)

    def _text(self) -> str:
        """One running job with its estimates, or the first few of several jobs without estimates."""
        if len(self._phases) == 1:
            return "  ".join(part for part in (*self._phases.values(), *self._estimates.values()) if part)
        # the job that is timed comes first
        shown = sorted(self._phases.values(), key=lambda text: "  round " not in text)
        if more := shown[SHOWN_TOGETHER:]:
            shown[SHOWN_TOGETHER:] = [f"{len(more)} more"]
        return " | ".join(shown)


class PlainView:
    """A line for each job's start and each record, and one for the phase after ``QUIET_S`` quiet seconds."""

    def __init__(
        self, console: Console, jobs: int, begun: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._jobs = console, jobs
        self._clock, self._printed_s = clock, clock()
        self._started, self._under_way = begun, set[str]()

    def event(self, event: Event) -> None:
        title = f"{_what(event.job)} {event.job.device}"
        whose = f"    {title}  " if len(self._under_way) > 1 else "    "
        if isinstance(event, Started):
            self._started += 1
            self._under_way.add(event.job.key)
            self._print(f"[{self._started}/{self._jobs}] {title}")
        elif isinstance(event, Doing):
            if self._clock() - self._printed_s > QUIET_S:
                self._print(f"{whose}{_phase(event)} ...")
        elif isinstance(event, JobEnded):
            self._under_way.discard(event.job.key)
        elif isinstance(event, (Record, Previewed)):
            text = outcome(event) if isinstance(event, Record) else previewed(event)
            self._print(f"{whose}{text}")

    def _print(self, line: str) -> None:
        self._printed_s = self._clock()
        self._console.print(plain(line), markup=False, highlight=False, soft_wrap=True)


class NotebookView:
    """One output of a cell, which changes. Outcomes stay above the changing line."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._lines: list[str] = []
        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def event(self, event: Event) -> None:
        if isinstance(event, (JobEnded, Previewed)):
            return
        lines = self._lines
        if isinstance(event, Record):
            lines.append(plain(outcome(event)))
        else:
            numbers = estimates(event.pairs) if isinstance(event, Timed) else ""
            lines = [*lines, plain(f"{_what(event.job)}  {_phase(event)}  {numbers}".rstrip())]
        self._handle.update({"text/plain": "\n".join(lines)}, raw=True)


def outcome(record: Record) -> str:
    """``inductor 1.31x [1.24, 1.38] faster, pass``, of this result alone; for a failure, with its reason."""
    from runner.analysis.derive import compare
    from runner.analysis.texts import verdict_text

    why = ""
    if (failure := record.failure) is not None:
        why = f" in phase {failure.phase}: {failure.kind}: {failure.message[:LONGEST_REASON]}"
    (known,) = compare([record])
    if known.verdict is None or not (record.status.passed or record.status is Status.APPROXIMATE):
        return f"{record.candidate}: {record.status.value}{why}"
    answer = f"{estimate_text(known.estimate)} {verdict_text(known, counts=True)}"
    return f"{record.candidate} {answer}, {record.status.value}{why}"


def previewed(event: Previewed) -> str:
    """``inductor 1.31x [1.24, 1.38] so far, in 10 rounds before ...``: an estimate that does not count."""
    from runner.analysis.verdicts.between import assumed_in
    from runner.analysis.verdicts.decision import judged

    ((candidate, (baseline_s, candidate_s)),) = event.pairs.items()
    tau = assumed_in(event.job, candidate, baseline_s)
    estimate = estimate_text(judged(baseline_s, candidate_s, assumed_sd=tau))
    return f"{candidate} {estimate} so far, in {len(baseline_s)} rounds before the other compilers begin"


def _phase(event: Started | Doing | Timed) -> str:
    if isinstance(event, Timed):
        return f"round {event.done}"
    if isinstance(event, Started):
        return "start"
    activity = event.activity
    what = f"{activity.phase} {activity.variant}".strip()
    return f"round {activity.rounds}" if activity.phase == "measure" else what


def _what(job: Job) -> str:
    return " ".join((job.case.name, job.case.mode.value, job.dtype, *job.case.point))


def estimates(pairs: Pairs) -> str:
    """``inductor 1.31x  torchscript 1.02x``: the current estimates, for the progress bar."""
    from runner.analysis.statistics import paired_speedup

    return "  ".join(
        f"{candidate} {paired_speedup(baseline, times).factor:.2f}x"
        for candidate, (baseline, times) in pairs.items()
        if baseline
    )
