"""``--compare``: what changed between two runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import BAD_INPUT, FAILURES, OK, OPEN
from runner.cli.formats import formats_asked
from runner.cli.streams import tell
from runner.errors import UsageError
from runner.names import plain
from runner.plan.config import RunConfig
from runner.plan.settings import listed, read_row, row_at

if TYPE_CHECKING:
    from runner.runs.compare.gates import GateResult

COMPARE = flag(
    "--compare",
    group=Group.ACTIONS,
    nargs="+",
    metavar=("BASE", "NEW"),
    help="BASE [BASE ...] NEW: show what changed from BASE to NEW; RUN@ENV: one environment: docs/COMPARE.md",
)
FAIL_ON = flag(
    "--fail-on=WHAT",
    group=Group.ACTIONS,
    listed=True,
    help="exit code 1 on speedup:1.4 (less), compile[:10%%], memory[:10%%], recompiles, graph-breaks; with "
    "--compare or two --envs also regression[:5%%], improvement[:5%%], time[:5%%], parity; 3 where open: "
    "docs/COMPARE.md",
)
FLAGS = (COMPARE, FAIL_ON)
FORMATS = ("console", "json", "md")


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The runs, the new one last. ``output_dir``: where files go; None: one format is printed."""

    runs: tuple[Path, ...]
    formats: frozenset[str]
    fail_on: tuple[str, ...]
    output_dir: Path | None


def parse(given: Given) -> CompareRequest:
    runs = tuple(map(Path, given[COMPARE.key]))
    output_dir = read_row(row_at(RunConfig, "output_dir"), given, None)
    formats = formats_asked(given) or frozenset(FORMATS if output_dir is not None else ("console",))
    for word in sorted(formats - {*FORMATS}):
        raise UsageError(f"--format: a comparison of runs has no {word}; choose from {', '.join(FORMATS)}")
    if len(formats) > 1 and output_dir is None:
        raise UsageError(
            "--format: one format at a time is printed; name a folder for more with --output-dir"
        )
    if len(runs) < 2:
        raise UsageError("--compare: name two runs, or more: BASE [BASE ...] NEW")
    for run, place in zip(runs, places := [*map(os.path.realpath, runs)], strict=True):
        if places.count(place) > 1:
            raise UsageError(f"--compare: {run} is named twice; name two runs")
    return CompareRequest(runs, formats, listed(FAIL_ON.long, given.get(FAIL_ON.key, ())), output_dir)


def perform(request: CompareRequest, argv: Sequence[str]) -> int:
    """Prints the changes, or writes them (``--format``, ``--output-dir``). Returns the code of the gates."""
    from rich.console import Console

    from runner.reports.parts.grid import say
    from runner.runs.compare.changes import changes_between
    from runner.runs.compare.gates import gate_results, gates_asked
    from runner.runs.compare.run import load
    from runner.runs.compare.views import print_changes, print_result, render_json, render_markdown
    from runner.store.run_folder import write_asked

    gates, console = gates_asked(request.fail_on), Console()
    changes = changes_between(*(load("--compare", run) for run in request.runs))
    results, refusals = gate_results(changes, gates)
    if "console" in request.formats:
        print_changes(changes, results, console)
    renders = {"json": render_json, "md": render_markdown}
    for name, render in renders.items():
        if name in request.formats and request.output_dir is None:
            sys.stdout.write(render(changes, results))
        elif name in request.formats and request.output_dir is not None:
            path = request.output_dir / f"changes.{name}"
            write_asked("--output-dir", path, render(changes, results).encode(errors="backslashreplace"))
            say(console, str(path))
    for result in results:  # always print the cause of exit codes 1 and 3
        if "console" not in request.formats and (result.cases or result.open):
            print_result(result, Console(stderr=True))
    return code_of(results, refusals)


def code_of(results: Sequence[GateResult], refusals: Sequence[UsageError]) -> int:
    """A gate that failed, then one without data, then one that is open. Says what has no data."""
    sys.stdout.flush()  # the outcomes come first
    for refusal in refusals:
        tell(f"error: {plain(str(refusal))}")
    failed, opened = any(result.cases for result in results), any(result.open for result in results)
    return FAILURES if failed else BAD_INPUT if refusals else OPEN if opened else OK
