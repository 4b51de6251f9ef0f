"""Writes ``docs/FLAGS.md`` from the parser: ``python -m runner.cli.flags_page``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from runner.cli.parser import build_parser
from runner.cli.upstream import Theirs, answers, renamed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "FLAGS.md"
HEAD = """\
# Every flag

`python -m runner.cli.flags_page` writes this page from the table of settings; a test compares them.
A value is given as `--flag VALUE` or `--flag=VALUE`. Flags cannot be abbreviated. The script of a suite
(`python suites/tiny_gpt.py ...`) takes the same flags and measures its own suite.
"""


def page() -> str:
    parser = build_parser()
    parts = [HEAD, *_groups(parser)]
    assert parser.epilog is not None
    examples, _, codes = parser.epilog.partition("\n\nexit code:")
    commands = examples.removeprefix("examples:\n")
    parts.append(f"## Examples\n\n```\n{re.sub('(?m)^  ', '', commands).rstrip()}\n```\n")
    parts.append(f"## Exit code\n\n{codes.strip().capitalize()}.\n")
    parts.append(_upstream())
    return "\n".join(parts)


UPSTREAM = """\
## Coming from benchmarks/dynamo

The commands of PyTorch's `benchmarks/dynamo` can be typed as they are: `python suites/huggingface.py ...`
for its suite scripts, `python runner.py ...` for its runner. Flags with the same name are in the tables
above. Other flags are translated, or accepted because nothing needs to be typed here; a note on standard
error says so. The rest ends with a sentence and exit code 2. `--some_flag` is read as `--some-flag`. A
command that names a compiler and no mode measures inference.

`--inductor` is `torch.compile`'s default mode, without CUDA graphs; upstream's benchmark switches CUDA
graphs on. `--inductor-compile-mode=reduce-overhead` does so here.
"""


def _upstream() -> str:
    """The flags of ``benchmarks/dynamo`` that are not ours, and its names of compilers and models."""
    flags = [(", ".join(f"`{name}`" for name in row.names), _answer(row)) for row in answers()]
    rows = "\n".join(f"| {names} | {answer} |" for names, answer in flags)
    compilers, models = renamed()
    names = [(name, f"`{ours}`: {why}") for name, (ours, why) in compilers.items()]
    names += [(name, f"`{ours}`") for name, ours in models.items()]
    others = "\n".join(f"| `{name}` | {_cell(answer)} |" for name, answer in names)
    return (
        f"{UPSTREAM}\n| flag | answer |\n|---|---|\n{rows}\n\n"
        f"| compiler or model | here |\n|---|---|\n{others}\n"
    )


def _answer(row: Theirs) -> str:
    if row.refused:
        return _cell(f"not supported: {row.why}")
    words = dict.fromkeys(ours for ours in (*row.choices.values(), row.ours) if ours)
    code = ", ".join(f"`{word.replace('{re}', '{}').replace('{}', row.value)}`" for word in words)
    return ": ".join(part for part in (code, _cell(row.why)) if part)


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    # argparse has no public access to its groups
    for group in parser._action_groups:  # noqa: SLF001
        actions = group._group_actions  # noqa: SLF001
        if actions:
            rows = "\n".join(f"| {_names(action)} | {_what(action)} |" for action in actions)
            title = str(group.title)
            yield f"## {title[0].upper()}{title[1:]}\n\n| flag | what it does |\n|---|---|\n{rows}\n"


def _names(action: argparse.Action) -> str:
    words = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 or words is None else f" {words}"
    several = " ..." if action.nargs == "+" else ""
    optional = f" [{value.strip()}]" if action.nargs == "?" else f"{value}{several}"
    *others, last = action.option_strings
    return _cell(", ".join([*(f"`{name}`" for name in others), f"`{last}{optional}`"]))


def _what(action: argparse.Action) -> str:
    return _cell(str(action.help).replace("%%", "%"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
