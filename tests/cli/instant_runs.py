"""Many runs with workers that pretend, each in a fork of one process that has imported everything already."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cli.command import ROOT
from tests.cli.forked import Forks

INSTANT = str(ROOT / "tests" / "cli" / "instant.py")
SUITE = str(ROOT / "tests" / "suites" / "instant.py")
FLAGS = ("--training", f"--suites={SUITE}", "--compilers=eager,inductor", "-n6", "--devices=cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended: its exit code (negative: the signal) and what it printed."""

    code: int
    printed: str


class Server(Forks):
    """Starts runs of the real command line. ``under``: a command that starts the server's own process."""

    def __init__(self, outputs: Path, under: Sequence[str] = ()) -> None:
        super().__init__([*under, sys.executable, INSTANT, "--serve"], stderr=subprocess.PIPE)  # no file
        self.light = True  # without the reports that take long
        self._output = outputs / "printed"

    def seen_there(self, path: Path) -> Path:
        """The path as the server's process sees it, which may have file systems of its own."""
        return Path(f"/proc/{self._process.pid}/root") / path.relative_to("/")

    def run(
        self,
        *words: str,
        kill_after: float | None = None,
        kill_workers: bool = False,
        die_at: int = 0,
        tear: int = 0,
        largest_file: int | None = None,
    ) -> Ended:
        """One run. It, or its workers, are killed after so many seconds, unless it has ended; or kills itself
        (``tests/cli/instant.py``); or can write no file beyond so many bytes."""
        code = self.exit_code(
            argv=words,
            output=str(self._output),
            kill_after=kill_after,
            kill_workers=kill_workers,
            die_at=die_at,
            tear=tear,
            light=self.light,
            largest_file=largest_file,
        )
        return Ended(code=code, printed=self._output.read_text(errors="replace"))


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder below this one: the workers of its run."""
    numbers = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                where = (process / "cwd").readlink()
            except OSError:
                continue
            if where.is_relative_to(folder):
                numbers.append(int(process.name))
    return numbers
