"""The command line: every flag once, grouped, with its help. Parsing only; meaning is in config.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from harness.schema import Protocol
from runner.bisect.asked import add_bisect
from runner.changes.asked import add_compare
from runner.environments.flags import add_environments
from runner.errors import UsageError
from runner.extras import add_extras
from runner.flag_types import count, whole
from runner.flags_measure import add_protocol
from runner.history.asked import add_history, add_tag

EXAMPLES = """\
examples:
  python runner.py --suites=tiny_gpt --training --dtypes=bfloat16
        eager against aot_eager, inductor and torchscript, in pairs
  python runner.py --suites=tiny_gpt --inference --dtypes=float32,amp --compilers=inductor -k shakespeare
        two precisions, one compiler, the models whose name matches
  python runner.py --suites=tiny_gpt --training --compilers=eager
        the A/A control: must come out 1.00x
  python runner.py --suites=huggingface,timm_models --inference --only 'vit_*' --only LlamaForCausalLM
        beyond the suites' lists: any name that transformers or timm has
  python runner.py --model mypackage.models:make --training --compilers=inductor
        your own model: make() returns (module, inputs)
  python suites/tiny_gpt.py --training --bfloat16 -dcpu --inductor --only MLP_addition -n30
        one model by the suite's own script, exactly 30 rounds
  python runner.py --visualize-logs logs/RUN
        builds every table, file and plot of a finished run again
  python runner.py --compare logs/BEFORE logs/AFTER --fail-on=regression:5%,parity
        what changed between two runs, and whether a pull request may go in

exit code: 0 all well; 1 a parity check failed, a candidate could not run, or --fail-on found it; 2 bad input
"""

DEFAULTS = Protocol()


class Parser(argparse.ArgumentParser):
    """Raises instead of printing usage: a bad flag ends in one sentence like any other bad input."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def refuse_lone_dashes(arguments: Sequence[str]) -> None:
    """``UsageError`` for ``--flag=--``, of which argparse would make an empty list, whatever the flag."""
    for word in arguments:
        found = re.fullmatch(r"(--[\w-]+|-\w)=?--", word)
        if found:
            raise UsageError(f"{found[1]}: '--' is no value; give one, or leave the flag out")


def build_parser(prog: str = "runner.py") -> Parser:
    parser = Parser(
        prog=prog,
        description="Measures eager and compiled PyTorch models in pairs: parity, speedup and its interval.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    _add_actions(parser)
    _add_selection(parser)
    _add_models(parser)
    _add_compilers(parser)
    _add_conditions(parser)
    add_protocol(parser)
    add_extras(parser)
    add_environments(parser)
    _add_output(parser)
    return parser


def _add_actions(parser: Parser) -> None:
    group = parser.add_argument_group("instead of measuring")
    group.add_argument("-h", "--help", action="help", help="show this and end")
    group.add_argument("--list", action="store_true", help="list the models that the other flags select")
    group.add_argument(
        "--list-compilers",
        action="store_true",
        help="list the compilers, and why one cannot be used here, or in each of --envs",
    )
    group.add_argument(
        "--print-run-commands",
        "--print_run_commands",
        action="store_true",
        help="print one suite-script command for each model, device and precision",
    )
    group.add_argument(
        "--visualize-logs",
        "--visualize_logs",
        metavar="DIR",
        help="rebuild tables, files and plots of a run from its records",
    )
    group.add_argument(
        "--doctor", action="store_true", help="look at this machine: how noisy it is, and what to change"
    )
    group.add_argument(
        "--index",
        nargs="?",
        const="logs",
        metavar="DIR",
        help="make DIR/index.html of the runs in a folder: a list with links, and trends (default: logs)",
    )
    group.add_argument("--resume", metavar="DIR", help="finish what is missing in an interrupted run")
    group.add_argument(
        "--merge",
        nargs="+",
        metavar="DIR",
        help="join runs that belong together, such as the parts of a plan, in a new folder (--output-dir)",
    )
    add_compare(group)
    add_history(group)
    add_bisect(group)


def _add_selection(parser: Parser) -> None:
    group = parser.add_argument_group("what to measure")
    group.add_argument(
        "--suites",
        action="append",
        metavar="NAME",
        help="suites, repeated or comma-separated; a path to a .py file is a suite too (default: tiny_gpt)",
    )
    group.add_argument(
        "--training", action="store_true", help="forward, loss and backward; modes may be combined"
    )
    group.add_argument("--inference", action="store_true", help="forward without gradients")
    group.add_argument(
        "--generate",
        action="store_true",
        help="greedy text generation with a static cache: prefill and decode",
    )
    group.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="just this model (may be repeated): any that the suite's library has; 'vit_*' works",
    )
    group.add_argument(
        "--model",
        action="append",
        metavar="MODULE:FUNCTION",
        help="a model of your own: the function returns (module, inputs) or (module, inputs, loss)",
    )
    group.add_argument(
        "-k", "--filter", action="append", metavar="RE", help="models whose name matches (any of them)"
    )
    group.add_argument(
        "-x", "--exclude", action="append", metavar="RE", help="not the models whose name matches"
    )
    group.add_argument("--quick", action="store_true", help="a few models, few rounds: under a minute")
    group.add_argument(
        "--no-skip", action="store_true", help="also the models that their suite skips with a reason"
    )
    group.add_argument(
        "--total-partitions",
        type=count("--total-partitions"),
        metavar="N",
        help="split the plan into N parts of about equal time, for as many machines",
    )
    group.add_argument(
        "--partition-id",
        type=whole("--partition-id"),
        metavar="I",
        help="the part to run, from 0 to N-1; join the runs afterwards with --merge",
    )
    group.add_argument(
        "--timings",
        metavar="DIR",
        help="an earlier run whose times say how long each job takes: the same one for every part",
    )


def _add_models(parser: Parser) -> None:
    group = parser.add_argument_group("which form of the models")
    group.add_argument(
        "--scale",
        metavar="SCALE",
        help="full: as published (default on CUDA); small: same widths, less depth, vocabulary and length "
        "(default on a CPU); tiny: for tests",
    )
    group.add_argument(
        "--batch-size", type=count("--batch-size"), metavar="N", help="instead of each model's own"
    )
    group.add_argument(
        "--batch-size-file", metavar="FILE", help="one 'model,batch size' a line, for the models named there"
    )
    group.add_argument(
        "--fixed-batch",
        action="store_true",
        help="out of memory is a failure, instead of halving the batch for eager and compiled alike",
    )
    group.add_argument(
        "--loss",
        metavar="LOSS",
        help="own: the suite's (default); mean, sum: of the output",
    )
    group.add_argument(
        "--model-config",
        action="append",
        metavar="KEY=VALUE",
        help="changes the model's configuration (may be repeated)",
    )
    group.add_argument(
        "--pretrained", action="store_true", help="published weights instead of random ones: uses the network"
    )
    group.add_argument(
        "--prompt-tokens",
        type=count("--prompt-tokens"),
        metavar="N",
        help="of --generate (default: 1000 at full scale, 64 at small, 8 at tiny)",
    )
    group.add_argument(
        "--new-tokens",
        type=count("--new-tokens"),
        metavar="N",
        help="of --generate (default: 2000 at full scale, 32 at small, 4 at tiny)",
    )


def _add_compilers(parser: Parser) -> None:
    group = parser.add_argument_group("compilers (candidates, each paired with eager)")
    group.add_argument(
        "--compilers",
        action="append",
        metavar="NAME",
        help="repeated or comma-separated (default: aot_eager,inductor,torchscript); eager: A/A control",
    )
    group.add_argument("--inductor", action="store_true", help="the same as --compilers=inductor")
    group.add_argument("--backend", action="append", metavar="NAME", help="the same as --compilers=NAME")
    group.add_argument("--speedup-ts", action="store_true", help="the same as --compilers=torchscript")
    group.add_argument("--nothing", action="store_true", help="the same as --compilers=eager")
    group.add_argument("--speedup-dynamo-ts", action="store_true", help="the same as --compilers=dynamo_ts")
    group.add_argument(
        "--accuracy-aot-ts-mincut",
        action="store_true",
        help="the same as --compilers=aot_ts_mincut --accuracy",
    )
    group.add_argument(
        "--export-aot-inductor", action="store_true", help="the same as --compilers=aot_inductor"
    )
    group.add_argument(
        "--skip-unavailable",
        action="store_true",
        help="a compiler that cannot be used here is skipped, with a record that says why, and no error",
    )
    _add_compiler_options(parser)


def _add_compiler_options(parser: Parser) -> None:
    group = parser.add_argument_group("options of the compilers")
    group.add_argument(
        "--inductor-config",
        action="append",
        metavar="KEY=VALUE",
        help="a setting of torch._inductor.config for every inductor candidate (may be repeated)",
    )
    group.add_argument(
        "--inductor-compile-mode",
        metavar="MODE",
        help="default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs: which one inductor means",
    )
    group.add_argument("--freezing", action="store_true", help="inductor: weights are constants (inference)")
    group.add_argument("--dynamic-shapes", action="store_true", help="compile for any size")
    group.add_argument("--dynamic-batch-only", action="store_true", help="compile for any batch size")
    group.add_argument("--nopython", action="store_true", help="a graph break is an error")
    group.add_argument("--nnc", action="store_true", help="TorchScript's fuser: NNC")
    group.add_argument(
        "--nvfuser", action="store_true", help="TorchScript's fuser: NVFuser, where the build has it"
    )


def _add_conditions(parser: Parser) -> None:
    group = parser.add_argument_group("under which conditions")
    group.add_argument(
        "-d",
        "--devices",
        "--device",
        action="append",
        metavar="DEVICE",
        help="cpu, cuda, cuda:1; repeated or comma-separated (default: cuda where there is one, else cpu). "
        "Several of one kind share the plan: each model runs on one of them, side by side, by expected time",
    )
    group.add_argument(
        "--executor",
        default="local",
        metavar="WHERE",
        help="local: this machine (default); ray: the nodes of a Ray cluster, one job at a time for each GPU "
        "or, on CPUs, for each node; with --threads=N a CPU job takes N cores and shares its node",
    )
    group.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="the cluster, such as 10.0.0.1:6379 or auto (default: RAY_ADDRESS, else one started here)",
    )
    group.add_argument(
        "--dtypes",
        action="append",
        metavar="DTYPE",
        help="float32, tf32, bfloat16, float16, amp (the device's usual), amp_bfloat16, amp_float16, "
        "amp_bfloat16+tf32; repeated or comma-separated (default: float32)",
    )
    group.add_argument(
        "--baseline-dtype",
        metavar="DTYPE",
        help="precision of the eager that everything is timed against (default: each candidate's own)",
    )
    for name in ("float32", "bfloat16", "float16", "amp"):
        group.add_argument(f"--{name}", action="store_true", help=f"the same as --dtypes={name}")
    group.add_argument(
        "-t",
        "--threads",
        type=count("--threads"),
        metavar="N",
        help="CPU threads of the worker (default: torch's choice)",
    )
    group.add_argument(
        "--seed",
        type=whole("--seed"),
        metavar="N",
        help=f"for weights, inputs and the order of the rounds (default: {DEFAULTS.seed})",
    )


def _add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-dir",
        metavar="DIR",
        help="a new or empty folder for this run (default: logs/<UTC time>-<what>)",
    )
    group.add_argument(
        "--format",
        action="append",
        metavar="FORMAT",
        help="html, md, csv, txt, json, png, svg: which files to make; console: print the tables; "
        "repeated or comma-separated (default: all). The records are always kept",
    )
    add_tag(group)
