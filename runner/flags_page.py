"""``docs/FLAGS.md``, made from the parser: ``python -m runner.flags_page`` writes it anew."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from runner.flags import build_parser

PAGE = Path(__file__).resolve().parent.parent / "docs" / "FLAGS.md"
HEAD = """\
# Every flag

Made from the parser by `python -m runner.flags_page`; a test holds it to what `python runner.py --help` says.
Values are given as `--flag VALUE` or `--flag=VALUE`; no flag may be shortened. A suite's own script
(`python suites/tiny_gpt.py ...`) takes the same flags and means its own suite.
"""


def page() -> str:
    parser = build_parser()
    parts = [HEAD, *_groups(parser)]
    assert parser.epilog is not None
    examples, _, codes = parser.epilog.partition("\n\nexit code:")
    commands = examples.removeprefix("examples:\n")
    parts.append(f"## Examples\n\n```\n{re.sub('(?m)^  ', '', commands).rstrip()}\n```\n")
    parts.append(f"## Exit code\n\n{codes.strip().capitalize()}.\n")
    return "\n".join(parts)


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    # argparse has no public way to its groups; --help is made of the same
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
