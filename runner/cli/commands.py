"""The command that measures one job again. Users copy it; the program never runs it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from harness.schema import Environment, Job
from harness.settings import is_own_model
from runner.plan.config import QUICK, USUAL, Changes, RunConfig, Selection
from runner.plan.environments.spec import EAGER, EnvSpec, split_candidate
from runner.plan.settings import words
from runner.plan.sweep import axes_of
from runner.store.invocation import program, suite_script

DEFAULTS = RunConfig(protocol=USUAL)
SHORT = RunConfig(protocol=QUICK, selection=Selection(quick=True))


def job_command(job: Job, candidates: Sequence[str] | None = None) -> str:
    """The suite's script with the flags that make this job with these candidates."""
    config = config_of(job, candidates or job.candidates)
    suite = job.case.suite
    by_path = is_own_model(suite) or suite.endswith(".py")
    begin = program() if by_path else suite_script(suite)
    hidden = ("selection.quick", *(() if by_path else ("suites",)))  # --quick is not needed for one model
    return shlex.join([*begin, *words(config, ([], DEFAULTS), (["--quick"], SHORT), hidden=hidden)])


def config_of(job: Job, candidates: Sequence[str]) -> RunConfig:
    """The configuration whose plan is this job with these candidates."""
    case, protocol = job.case, job.protocol
    if not (protocol.accuracy or protocol.performance):  # a compile start: no flags ask for it alone
        protocol = replace(protocol, accuracy=True, performance=True)
    own = is_own_model(case.suite)
    # --only splits names at commas and strips spaces; a terminal shows a control character as an escape
    exact = "," not in case.name and case.name == case.name.strip() and case.name.isprintable()
    escaped = (re.escape(c) if c.isprintable() else c.encode("unicode_escape").decode() for c in case.name)
    selection = Selection(only=(case.name,)) if exact else Selection(filters=(f"^{''.join(escaped)}$",))
    compilers, environments = _compilers(job, candidates)
    same: dict[str, Any] = {f.name: getattr(case, f.name) for f in fields(Changes) if hasattr(case, f.name)}
    if own:
        same["scale"] = None
    swept = {"batch": "batch_size", "sequence": "prompt_tokens"}
    same |= {swept[axis]: None for axis in case.at if axis in swept}
    return RunConfig(
        suites=(case.suite,),
        modes=(case.mode,),
        dtypes=(job.dtype,),
        devices=(job.device,),
        environments=tuple(EnvSpec(name=where.name, text=where.asked) for where in environments),
        compilers=tuple(job.own_compilers.get(name, name) for name in compilers),
        skip_unavailable=any(name in job.unavailable for name in candidates),
        selection=Selection() if own else selection,
        changes=Changes(**same),
        sweep=axes_of(case),
        baseline_dtype=job.baseline_dtype,
        options=job.options,
        protocol=replace(protocol, threads=None) if "threads" in case.at else protocol,
        extras=job.extras,
    )


def _compilers(job: Job, candidates: Sequence[str]) -> tuple[tuple[str, ...], tuple[Environment, ...]]:
    """The compilers of these candidates, and their environments, the reference first."""
    if not job.environments:
        return tuple(candidates), ()
    chosen = [split_candidate(job, candidate) for candidate in candidates]
    reference = job.environments[0]
    needed = [reference, *(environment for _, environment in chosen)]
    # eager of another environment is always measured; eager of the reference only if it is a candidate
    named = [compiler for compiler, where in chosen if compiler != EAGER or where == reference]
    return tuple(dict.fromkeys(named)) or (EAGER,), tuple(e for e in job.environments if e in needed)
