"""Finds where a candidate goes wrong, judged by the rule of parity and nothing else.

First the stage. The compilers of ``STAGES`` are inductor, stopped after one stage more each: the first that
fails names the stage. A candidate whose earlier stages are all right is wrong in its own code generation.

Then the submodule. Each submodule is compiled alone, on copies of the inputs that eager gives it, and goes
through the whole check: outputs, gradients of its weights and inputs, steps in a row, other data. The search
goes down from the model: it enters the first submodule that fails, and ends where none inside fails. Of
submodules of one kind (class, configuration and shapes of inputs) one is tried. A fault that needs two
submodules together ends at the submodule that holds both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.backends.settings.candidates import file_name
from harness.codec import from_json
from harness.devices import of
from harness.failures import JobFailed
from harness.loading.suite_files import load_suite
from harness.program import Compilers
from harness.schema import Extras, Job, Mode, Status, Where
from harness.tensors import named_tensors
from harness.timing.step import seed_everything
from harness.worker.localize.script import NOT_RUN, NOT_SHOWN, SHOWN, write_script
from harness.worker.localize.submodules import building_part, called_inside, given_to
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Build

STAGES = {
    "dynamo_eager": "capture",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
}
OWN = "code generation"
MOST = 60  # submodules that are compiled

Announce = Callable[[Activity], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one compiler, and a sentence why it fails."""

    status: Status
    why: str = ""

    @property
    def wrong(self) -> bool:
        return self.status is Status.FAIL_ACCURACY


def judge(
    job: Job,
    compiler: str,
    name: str,
    build: Build | None = None,
    compilers: Compilers | None = None,
    announce: Announce = lambda _: None,
) -> Verdict:
    """Compiles the submodule ``name`` ("" is the whole model) and checks parity, without timing.

    ``build`` makes the whole workload (default: the suite's).
    """
    torch._dynamo.reset()  # noqa: SLF001 - the graphs of the compilation before would count against limits
    protocol = replace(job.protocol, accuracy=True, performance=False)
    if name:  # a part may have no parameter
        protocol = replace(protocol, optimizer="none")
    case = replace(job.case, loss="own") if name else job.case  # a part has a loss of its own
    job = replace(job, case=case, candidates=(compiler,), protocol=protocol, extras=Extras())
    build = building_part(build or load_suite(job.case.suite).build, name, job)
    try:
        session = Session(job, announce, build, compilers)
        session.open()
        status, parity, _, _ = session.prepare(compiler)
    except JobFailed as failed:
        return Verdict(status=failed.status, why=failed.failure.message)
    worst = parity.worst if parity is not None and parity.failed else None
    return Verdict(status=status, why=f"{worst.name}: {worst.failure}" if worst is not None else "")


def localize(
    job: Job,
    candidate: str,
    folder: Path | None = None,
    build: Build | None = None,
    compilers: Compilers | None = None,
    announce: Announce = lambda _: None,
) -> Where:
    """The stage and the smallest submodule. Writes ``repro-<candidate>.py`` into ``folder``.

    For a process of its own: it compiles the model once for each stage, and many of its parts.
    """
    if job.case.mode is Mode.GENERATE:
        return Where(stage="", note="generated text is not localized")
    build = build or load_suite(job.case.suite).build

    def tried(compiler: str, name: str = "") -> Verdict:
        doing = Activity(phase="localize", variant=f"{name or 'the whole model'} with {compiler}")
        return judge(job, compiler, name, build, compilers, lambda _: announce(doing))

    verdict = tried(candidate)
    if not verdict.wrong:
        said = f": {verdict.why}" if verdict.why else ""
        return Where(stage="", note=f"in a fresh worker, {candidate} ends as {verdict.status.value}{said}")
    compiler, stage = candidate, STAGES.get(candidate, OWN)
    for earlier in takewhile(lambda name: name != candidate, STAGES):
        if (other := tried(earlier)).wrong:
            compiler, stage, verdict = earlier, STAGES[earlier], other
            break
    where = _smallest(job, build, lambda name: tried(compiler, name), verdict.why)
    script = ""
    if folder is not None:
        path = folder / f"repro-{file_name(candidate)}.py"
        path.write_text(write_script(job, compiler, where.module, where.why, path.name), encoding="utf-8")
        script = path.name
    return replace(where, stage=stage, compiler=compiler, repro=script)


def _smallest(job: Job, build: Build, tried: Callable[[str], Verdict], why: str) -> Where:
    """The smallest submodule that fails, and why; the whole model fails because of ``why``."""

    def built() -> Any:
        seed_everything(job.protocol.seed)
        return build(job.case)

    model: nn.Module = built().module
    name, note, known = "", "", set[Any]()
    inside = list(called_inside(model, name))
    arguments = given_to(built(), inside, job)
    while inside:
        child = inside.pop(0)
        part = model.get_submodule(child)
        if child not in arguments or (kind := _kind(part, arguments[child])) in known:
            continue
        if len(known) == MOST:
            note = f"the search ended after {MOST} submodules: a smaller one may fail"
            break
        known.add(kind)
        if (verdict := tried(child)).wrong:
            name, why, inside = child, verdict.why, list(called_inside(model, child))
            arguments = given_to(built(), inside, job)
    kind_of = type(model.get_submodule(name)).__name__
    return Where(stage="", module=name, module_class=kind_of, why=why, trials=len(known), note=note)


def _kind(module: nn.Module, arguments: Any) -> Any:
    shapes = tuple((path, tuple(t.shape), str(t.dtype)) for path, t in named_tensors(arguments, "given"))
    return type(module), repr(module), shapes


def replay(job_as_json: Any, compiler: str, name: str) -> int:
    """For the script: prints the verdict on the submodule compiled alone; returns the exit code."""
    job = from_json(Job, job_as_json)
    if why_not := of(job.device).why_missing():
        print(f"this machine cannot run it: {why_not}", file=sys.stderr)
        return NOT_RUN
    verdict = judge(job, compiler, name)
    print(f"{compiler} on {name or 'the whole model'}: {verdict.status.value}\n{verdict.why}".strip())
    return {Status.FAIL_ACCURACY: SHOWN, Status.PASS: NOT_SHOWN}.get(verdict.status, NOT_RUN)
