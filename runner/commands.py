"""The command that measures one job again: for people to copy, never for a shell to run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

from harness.own_model import is_own_model
from harness.schema import Case, Job, Protocol
from runner.config import QUICK
from runner.environments.plan import split_candidate
from runner.extras import extras_flags


def job_command(job: Job, candidates: Sequence[str] | None = None) -> str:
    """The suite's own script with the flags that make this job (and only these candidates)."""
    case = job.case
    if is_own_model(case.suite):
        words = ["python", "runner.py", f"--model={case.suite}"]
    elif case.suite.endswith(".py"):
        words = ["python", "runner.py", f"--suites={case.suite}"]
    else:
        words = ["python", f"suites/{case.suite}.py"]
    words += [
        f"--{case.mode.value}",
        f"--dtypes={job.dtype}",
        f"--devices={job.device}",
        *_compiler_flags(job, candidates or job.candidates),
        *_case_flags(case),
        *_option_flags(job),
        *_protocol_flags(job.protocol),
        *extras_flags(job.extras),
    ]
    return shlex.join(words)


def _compiler_flags(job: Job, candidates: Sequence[str]) -> list[str]:
    if not job.environments:
        return [f"--compilers={','.join(candidates)}"]
    chosen = [split_candidate(job, candidate) for candidate in candidates]
    needed = {job.environments[0].name, *(environment.name for _, environment in chosen)}
    return [
        *(f"--envs={one.name}={one.asked}" for one in job.environments if one.name in needed),
        f"--compilers={','.join(dict.fromkeys(compiler for compiler, _ in chosen))}",
    ]


def _option_flags(job: Job) -> list[str]:
    options = job.options
    flags = [] if job.baseline_dtype is None else [f"--baseline-dtype={job.baseline_dtype}"]
    flags += [f"--inductor-config={text}" for text in options.inductor_config]
    for flag, given in (
        ("--dynamic-shapes", options.dynamic_shapes),
        ("--dynamic-batch-only", options.dynamic_batch),
        ("--freezing", options.freezing),
        ("--nopython", options.nopython),
        (f"--{options.fuser}", options.fuser is not None),
    ):
        flags += [flag] if given else []
    return flags


def _case_flags(case: Case) -> list[str]:
    flags = [] if is_own_model(case.suite) else [f"--only={case.name}", f"--scale={case.scale}"]
    if case.batch_size is not None:
        flags.append(f"--batch-size={case.batch_size}")
    if case.loss != "own":
        flags.append(f"--loss={case.loss}")
    if case.pretrained:
        flags.append("--pretrained")
    if case.prompt_tokens is not None:
        flags.append(f"--prompt-tokens={case.prompt_tokens}")
    if case.new_tokens is not None:
        flags.append(f"--new-tokens={case.new_tokens}")
    return flags + [f"--model-config={text}" for text in case.config]


def _protocol_flags(protocol: Protocol) -> list[str]:
    default = Protocol()
    flags = [f"--seed={protocol.seed}"]
    flags += [
        f"--{name.replace('_', '-')}"
        for name in ("isolate", "fixed_batch", "use_eval_mode")
        if getattr(protocol, name)
    ]
    if protocol.max_rounds == QUICK["max_rounds"]:
        flags.append("--quick")
        default = dataclasses.replace(default, **QUICK)
    if not protocol.performance:
        flags.append("--accuracy")
    if not protocol.accuracy:
        flags.append("--performance")
    if protocol.repeat is not None:
        flags.append(f"--repeat={protocol.repeat}")
    if protocol.precision != default.precision:
        flags.append(f"--precision={protocol.precision * 100:g}%")
    if protocol.parity != default.parity:
        flags.append(f"--parity={protocol.parity}")
    if protocol.threads is not None:
        flags.append(f"--threads={protocol.threads}")
    flags += [f"--phase-timeout={phase}={limit:g}" for phase, limit in protocol.phase_timeouts_s.items()]
    if protocol.max_memory_bytes is not None:
        flags.append(f"--max-memory={protocol.max_memory_bytes / 1e9:g}")
    if protocol.timeout_s != default.timeout_s:
        flags.append(f"--timeout={protocol.timeout_s:g}")
    return flags
