"""The flags for what is measured beside parity and times, their meaning, and the words for them."""

from __future__ import annotations

import argparse

from harness.schema import Extras
from runner.allocators import allocator_asked

# field of Extras: its flag
SWITCHES = {
    "explain": "--explain",
    "profiler_trace": "--export-profiler-trace",
    "cold_start": "--cold-start-latency",
    "warm_start": "--warm-start-latency",
}


def add_extras(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what else to find out (never during timed samples)")
    group.add_argument(
        "--explain",
        action="store_true",
        help="graph breaks and recompilations with their reasons and source lines, in report.md",
    )
    group.add_argument(
        "--export-profiler-trace",
        action="store_true",
        help="a Chrome trace of eager and each candidate, and in report.md the kernels that changed most",
    )
    group.add_argument(
        "--cold-start-latency",
        action="store_true",
        help="compile with empty caches: a cache folder of its own for each worker",
    )
    group.add_argument(
        "--warm-start-latency",
        action="store_true",
        help="compile once in a worker that is thrown away, then measure with the caches that it filled",
    )
    group.add_argument(
        "--allocator",
        metavar="NAME",
        help="the worker's host memory allocator: default (the system's, settled), jemalloc, tcmalloc",
    )


def extras_asked(options: argparse.Namespace) -> Extras:
    """``UsageError`` for an allocator that is not there."""
    return Extras(
        explain=options.explain,
        profiler_trace=options.export_profiler_trace,
        cold_start=options.cold_start_latency,
        warm_start=options.warm_start_latency,
        allocator=allocator_asked(options.allocator),
    )


def extras_flags(extras: Extras) -> list[str]:
    """The flags that ask for the same again."""
    flags = [flag for name, flag in SWITCHES.items() if getattr(extras, name)]
    return flags + ([f"--allocator={extras.allocator}"] if extras.allocator != "default" else [])
