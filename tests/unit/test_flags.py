"""The flags are frozen in a file: a new one is a conscious change of it.

``UPDATE_GOLDEN=1 pytest tests/unit/test_flags.py`` writes the file anew; read the difference.
"""

import argparse
import os
from pathlib import Path

from runner.cli.parser import build_parser

FLAGS = Path(__file__).parent.parent / "data" / "golden" / "flags.txt"


def actions() -> list[argparse.Action]:
    return build_parser()._actions


def test_the_list_of_flags() -> None:
    flags = "".join(f"{flag}\n" for flag in sorted(f for action in actions() for f in action.option_strings))
    if os.environ.get("UPDATE_GOLDEN"):
        FLAGS.write_text(flags, encoding="utf-8")
    assert flags == FLAGS.read_text(encoding="utf-8")


def test_every_flag_says_what_it_does() -> None:
    assert [a.option_strings for a in actions() if not a.help] == []


def test_help_is_grouped_and_has_examples() -> None:
    text = build_parser().format_help()
    for heading in (
        "what to measure:",
        "compilers (",
        "under which conditions:",
        "how to measure:",
        "output:",
    ):
        assert heading in text
    assert "python runner.py --suites=tiny_gpt --training --dtypes=bfloat16" in text


def test_no_flag_may_be_abbreviated() -> None:
    assert build_parser().allow_abbrev is False
