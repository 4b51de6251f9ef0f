"""The actions: compare two runs, update an expected file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from runner.changes.asked import Asked
from runner.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("console", "json", "md")
OK, FAILED = 0, 1


def compare_runs(asked: Asked, formats: frozenset[str] | None, console: Console) -> int:
    """Prints what changed, or writes it (``--format``, ``--output-dir``); 1 where a gate fails."""
    from runner.changes.as_json import render_json
    from runner.changes.changes import changes_between
    from runner.changes.console import print_changes, print_outcome
    from runner.changes.gates import FOR_EXPECTED, gates_asked, outcomes
    from runner.changes.load import load
    from runner.changes.markdown import render_markdown

    wanted = _formats(asked, formats)
    gates = gates_asked(asked.fail_on)
    if asked.first.resolve() == asked.second.resolve():
        raise UsageError(f"--compare: {asked.first} is named twice; name two runs")
    first, second = load("--compare", asked.first), load("--compare", asked.second)
    changes = changes_between(first, second)
    if first.expected and not gates:
        gates = FOR_EXPECTED
    found = outcomes(changes, gates)
    texts = {
        "md": lambda: render_markdown(changes, found),
        "json": lambda: render_json(changes, found),
    }
    if "console" in wanted:
        print_changes(changes, found, console)
    for name in sorted(texts.keys() & wanted):
        if asked.output_dir is None:
            sys.stdout.write(texts[name]())
        else:
            _write(asked, f"changes.{name}", texts[name](), console)
    failed = [outcome for outcome in found if outcome.cases]
    if failed and "console" not in wanted:  # why the exit code is 1 is never left unsaid
        from rich.console import Console

        for outcome in failed:
            print_outcome(outcome, Console(stderr=True))
    return FAILED if failed else OK


def _formats(asked: Asked, given: frozenset[str] | None) -> frozenset[str]:
    """What is made: the tables; with a folder to write to, everything."""
    if given is None:
        return frozenset(FORMATS if asked.output_dir is not None else ("console",))
    for word in sorted(given):
        if word not in FORMATS:
            raise UsageError(
                f"--format: a comparison of runs has no {word}; choose from {', '.join(FORMATS)}"
            )
    if len(given) > 1 and asked.output_dir is None:
        raise UsageError(
            "--format: one format at a time is printed; name a folder for more with --output-dir"
        )
    return given


def _write(asked: Asked, name: str, content: str, console: Console) -> None:
    from runner.run_folder import write_whole

    assert asked.output_dir is not None
    try:
        asked.output_dir.mkdir(parents=True, exist_ok=True)
        write_whole(asked.output_dir / name, content.encode(errors="backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"--output-dir: {asked.output_dir / name} cannot be written ({error.strerror})"
        ) from None
    console.print(str(asked.output_dir / name), markup=False, highlight=False, soft_wrap=True)


def update(asked: Asked, console: Console) -> int:
    """Writes the expected file and says what became of its rows."""
    from runner.changes.expected import update_expected

    found = update_expected(asked.first, asked.second)
    lines = [f"{found.path}: {found.rows} rows, {len(found.added)} new, {len(found.changed)} changed"]
    lines += [f"    changed: {words}" for words in found.changed]
    if found.kept:
        lines.append(f"    kept: {found.kept} rows of results that this run has not measured")
    lines += [f"note: {sentence}" for sentence in found.notes]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return OK
