"""The flags are frozen here: a new one is a conscious change of this list."""

import argparse

from runner.cli.parser import build_parser

FLAGS = [
    "--accept",
    "--accuracy",
    "--allocator",
    "--amp",
    "--backend",
    "--baseline-dtype",
    "--batch-size",
    "--batch-size-file",
    "--bfloat16",
    "--bisect",
    "--calibrate",
    "--ci-width",
    "--cold-cache",
    "--cold-start-latency",
    "--compare",
    "--compile-runs",
    "--compilers",
    "--device",
    "--devices",
    "--doctor",
    "--dropout",
    "--dtypes",
    "--dynamic-batch-only",
    "--dynamic-shapes",
    "--envs",
    "--exclude",
    "--executor",
    "--explain",
    "--export-profiler-trace",
    "--fail-on",
    "--filter",
    "--fixed-batch",
    "--float16",
    "--float32",
    "--format",
    "--freezing",
    "--generate",
    "--help",
    "--history",
    "--inductor",
    "--inductor-compile-mode",
    "--inductor-config",
    "--inference",
    "--isolate",
    "--list",
    "--list-compilers",
    "--localize",
    "--loss",
    "--max-memory",
    "--merge",
    "--model",
    "--model-config",
    "--new-tokens",
    "--nnc",
    "--no-fork-server",
    "--no-skip",
    "--nopython",
    "--nvfuser",
    "--only",
    "--output-dir",
    "--parity",
    "--partition-id",
    "--performance",
    "--phase-timeout",
    "--precision",
    "--prepare-ahead",
    "--pretrained",
    "--print-run-commands",
    "--processes",
    "--prompt-tokens",
    "--protocol",
    "--quick",
    "--ray-address",
    "--reference-env",
    "--repeat",
    "--resume",
    "--scale",
    "--seed",
    "--skip-unavailable",
    "--suites",
    "--tag",
    "--threads",
    "--timeout",
    "--torchbench",
    "--total-partitions",
    "--training",
    "--tune",
    "--use-eval-mode",
    "--version",
    "--visualize-logs",
    "--warm-start-latency",
    "--why",
    "-d",
    "-h",
    "-k",
    "-n",
    "-t",
    "-x",
]


def actions() -> list[argparse.Action]:
    return build_parser()._actions


def test_the_list_of_flags() -> None:
    assert sorted(flag for action in actions() for flag in action.option_strings) == FLAGS


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
