"""The flags of several environments."""

from __future__ import annotations

import argparse


def add_environments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("in which Python environments")
    group.add_argument(
        "--envs",
        action="append",
        metavar="NAME=PYTHON",
        help="measure in this interpreter, such as old=/path/to/python, or in one that is made for "
        "requirements, once: torch==2.2.2, or old='torch==2.2.2 numpy<2'. Repeated: their rounds alternate",
    )
    group.add_argument(
        "--reference-env",
        metavar="NAME",
        help="the one of --envs that all others are held against (default: the first)",
    )
