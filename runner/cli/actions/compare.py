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
from runner.labels import plain
from runner.plan.config import RunConfig
from runner.plan.settings import listed, read_row, row_at

if TYPE_CHECKING:
    from runner.runs.compare.gates import GateResult

COMPARE = flag(
    "--compare",
    group=Group.ACTIONS,
    nargs=2,
    metavar=("A", "B"),
    help="show what changed from run A to run B; RUN@ENV: one environment of a run: docs/HOWTO.md",
)
FAIL_ON = flag(
    "--fail-on=WHAT",
    group=Group.ACTIONS,
    listed=True,
    help="exit code 1 on speedup:1.4 (less), compile[:10%%], memory[:10%%], recompiles, graph-breaks; "
    "with --compare also on regression[:5%%], time[:5%%] or parity; 3 where that is open: docs/HOWTO.md",
)
FLAGS = (COMPARE, FAIL_ON)
FORMATS = ("console", "json", "md")


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Two runs. ``output_dir``: where files go; None: one format is printed."""

    first: Path
    second: Path
    formats: frozenset[str]
    fail_on: tuple[str, ...]
    output_dir: Path | None


def parse(given: Given) -> CompareRequest:
    first, second = map(Path, given[COMPARE.key])
    output_dir = read_row(row_at(RunConfig, "output_dir"), given, None)
    default = FORMATS if output_dir is not None else ("console",)
    formats = formats_asked(given) or frozenset(default)
    for word in sorted(formats - {*FORMATS}):
        raise UsageError(f"--format: a comparison of runs has no {word}; choose from {', '.join(FORMATS)}")
    if len(formats) > 1 and output_dir is None:
        advice = "name a folder for more with --output-dir"
        raise UsageError(f"--format: one format at a time is printed; {advice}")
    if os.path.realpath(first) == os.path.realpath(second):
        raise UsageError(f"--compare: {first} is named twice; name two runs")
    fail_on = listed(FAIL_ON.long, given.get(FAIL_ON.key, ()))
    return CompareRequest(first, second, formats, fail_on, output_dir)


def perform(request: CompareRequest, argv: Sequence[str]) -> int:
    """Prints the changes, or writes them (``--format``, ``--output-dir``). Returns the code of the gates."""
    from rich.console import Console

    from runner.reports.parts.grid import say
    from runner.runs.compare.changes import changes_between
    from runner.runs.compare.gates import gate_results, gates_asked
    from runner.runs.compare.load import load
    from runner.runs.compare.output import print_changes, print_result, render_json, render_markdown
    from runner.store.run_folder import write_asked

    gates, console = gates_asked(request.fail_on), Console()
    changes = changes_between(load("--compare", request.first), load("--compare", request.second))
    results, refusals = gate_results(changes, gates)
    if "console" in request.formats:
        print_changes(changes, results, console)
    renders = {"json": render_json, "md": render_markdown}
    for name in (name for name in renders if name in request.formats):
        content = renders[name](changes, results)
        if request.output_dir is None:
            sys.stdout.write(content)
        else:
            path = request.output_dir / f"changes.{name}"
            write_asked("--output-dir", path, content.encode(errors="backslashreplace"))
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
    if any(result.cases for result in results):
        return FAILURES
    return BAD_INPUT if refusals else OPEN if any(result.open for result in results) else OK
