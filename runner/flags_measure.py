"""The flags that say how to measure: part of the command line (``runner.flags``)."""

from __future__ import annotations

import argparse

from harness.schema import Protocol
from runner.flag_types import count, duration, gigabytes, seconds, share

DEFAULTS = Protocol()


def add_protocol(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "-n",
        "--repeat",
        type=count("-n/--repeat"),
        metavar="N",
        help=f"exactly N rounds (default: {DEFAULTS.min_rounds} to {DEFAULTS.max_rounds}, until precise)",
    )
    group.add_argument(
        "--precision",
        type=share("--precision"),
        metavar="P%",
        help=f"stop when every 95%% interval is within +-P%% (default: {DEFAULTS.precision * 100:g}%%)",
    )
    group.add_argument(
        "--time-budget",
        type=duration("--time-budget"),
        metavar="TIME",
        help="for the whole run, as 30m or 2h: time that is left goes to jobs whose verdict is open",
    )
    group.add_argument(
        "--processes",
        type=count("--processes"),
        metavar="N",
        help="measure every job in N fresh processes, one after the other; the intervals then hold what "
        "differs between processes (default: 1; 5 or more to be narrow)",
    )
    group.add_argument("--accuracy", action="store_true", help="check parity only")
    group.add_argument("--performance", action="store_true", help="time only: parity is then unchecked")
    group.add_argument(
        "--parity",
        metavar="RULE",
        help="scaled: by each tensor's own size (default); field: the published harness's looser rule",
    )
    group.add_argument(
        "--use-eval-mode",
        action="store_true",
        help="train in eval mode: no dropout, no running statistics",
    )
    group.add_argument(
        "--no-fork-server",
        action="store_true",
        help="start a new interpreter for every worker, instead of forking one that has imported everything",
    )
    group.add_argument("--isolate", action="store_true", help="a process of its own for each candidate")
    group.add_argument(
        "--timeout",
        type=seconds("--timeout"),
        metavar="S",
        help=f"seconds for one worker, compilation included (default: {DEFAULTS.timeout_s:g})",
    )
    group.add_argument(
        "--phase-timeout",
        action="append",
        metavar="PHASE=S",
        help="seconds for one call of a phase: build (with eager's first runs), compile (one candidate), "
        "measure (a batch of rounds); may be repeated",
    )
    group.add_argument(
        "--max-memory",
        type=gigabytes("--max-memory"),
        metavar="GB",
        help="host memory of a worker and all it starts; beyond, the job ends as OOM (default: no limit)",
    )
