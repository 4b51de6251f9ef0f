"""Progress of a study: a bar with the current loss, and lines above it."""

from __future__ import annotations

from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from runner.labels import plain

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console


def progress(total: float) -> AbstractContextManager[Lines]:
    """A bar over ``total`` parts of the work on a terminal. Only lines elsewhere, or without rich."""
    try:
        import rich  # noqa: F401 - environments of --envs may lack it
    except ImportError:
        return nullcontext(Lines())
    return Shown(total)


class Lines:
    """Prints lines without a bar."""

    def advance(self, text: str, parts: float = 1) -> None:
        """Adds finished ``parts`` to the bar. ``text`` describes the current work and the loss."""

    def say(self, line: str) -> None:
        print(plain(line), flush=True)


class Shown(Lines):
    """A bar over ``total`` parts of the work on a terminal. Only lines elsewhere."""

    def __init__(self, total: float, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console or Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # few refreshes: drawing takes CPU time from the measured training
        self._progress = Progress(
            *columns,
            console=self._console,
            refresh_per_second=2,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> Shown:  # noqa: PYI034 - typing.Self came with Python 3.11
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, text: str, parts: float = 1) -> None:
        from rich.markup import escape

        self._progress.update(self._task, advance=parts, description=escape(plain(text)))

    def say(self, line: str) -> None:
        self._progress.console.print(plain(line), markup=False, highlight=False, soft_wrap=True)


def step_line(step: int, loss: float, evaluation: tuple[float, float], epoch: float) -> str:
    """``Step     0: loss=4.380359 train=4.359313 valid=4.357822 epoch=0.01``"""
    train, valid = evaluation
    return f"Step {step:5d}: loss={loss:.6f} train={train:.6f} valid={valid:.6f} epoch={epoch:.2f}"
