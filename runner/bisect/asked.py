"""The flag of ``--bisect``."""

from __future__ import annotations

import argparse


def add_bisect(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bisect",
        metavar="VERSIONS",
        help="torch==2.11.0..2.13.0, or a list torch==2.11.0,2.12.0,2.13.0: the first version with which the "
        "model of --only with the one compiler of --compilers changes its status or speed, by measuring two "
        "versions in alternation at each step. Another package beside a torch: "
        "'transformers==4.50.0..4.57.0 torch==2.13.0'",
    )
