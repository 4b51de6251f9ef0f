"""The action: compare two runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("console", "json", "md")
OK, FAILED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two runs. ``formats``: None: the default. ``output_dir``: where files go; None: nowhere."""

    first: Path
    second: Path
    formats: frozenset[str] | None = None
    fail_on: tuple[str, ...] = ()
    output_dir: Path | None = None


def compare_runs(request: CompareRequest, console: Console) -> int:
    """Prints the changes, or writes them (``--format``, ``--output-dir``). Returns 1 if a gate fails.

    ``UsageError`` for a gate for which the runs lack the data, after everything was printed or written.
    """
    from runner.reports.parts.grid import say
    from runner.runs.compare.changes import changes_between
    from runner.runs.compare.gates import gate_results, gates_asked
    from runner.runs.compare.load import load
    from runner.runs.compare.output import print_changes, print_result, render_json, render_markdown
    from runner.store.run_folder import write_asked

    wanted = _formats(request)
    gates = gates_asked(request.fail_on)
    if request.first.resolve() == request.second.resolve():
        raise UsageError(f"--compare: {request.first} is named twice; name two runs")
    changes = changes_between(load("--compare", request.first), load("--compare", request.second))
    results, refusals = gate_results(changes, gates)
    if "console" in wanted:
        print_changes(changes, results, console)
    for name, render in (("json", render_json), ("md", render_markdown)):
        if name not in wanted:
            continue
        if request.output_dir is None:
            sys.stdout.write(render(changes, results))
            continue
        path = request.output_dir / f"changes.{name}"
        content = render(changes, results).encode(errors="backslashreplace")
        write_asked("--output-dir", path, content, make_folder=True)
        say(console, str(path))
    failed = [result for result in results if result.cases]
    if failed and "console" not in wanted:  # always print the cause of exit code 1
        from rich.console import Console

        for result in failed:
            print_result(result, Console(stderr=True))
    if refusals:  # after the outcomes; a gate without data does not pass
        sys.stdout.flush()
        raise refusals[0]
    return FAILED if failed else OK


def _formats(request: CompareRequest) -> frozenset[str]:
    """The formats to make: the tables; with an output folder, all formats."""
    formats = request.formats
    if formats is None:
        return frozenset(FORMATS if request.output_dir is not None else ("console",))
    for word in sorted(formats):
        if word not in FORMATS:
            raise UsageError(
                f"--format: a comparison of runs has no {word}; choose from {', '.join(FORMATS)}"
            )
    if len(formats) > 1 and request.output_dir is None:
        raise UsageError(
            "--format: one format at a time is printed; name a folder for more with --output-dir"
        )
    return formats
