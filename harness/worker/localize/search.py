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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.loading.suite_files import load_suite
from harness.program import Compiled, Program
from harness.schema import Extras, Job, Mode, Status, Where
from harness.tensors import named_tensors
from harness.timing.step import seed_everything
from harness.worker.attempts import JobFailed
from harness.worker.localize.script import file_name, write_script
from harness.worker.localize.submodules import Build, building_part, called_inside, given_to
from harness.worker.session import Session
from harness.worker.status_page import Activity

STAGES = {
    "dynamo_eager": "capture",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
}
OWN = "code generation"
MOST = 60  # submodules that are compiled

Compilers = Mapping[str, Callable[[Program], Compiled]]
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
    case = replace(job.case, loss="own") if name else job.case  # a part has a loss of its own
    job = replace(job, case=case, candidates=(compiler,), protocol=protocol, extras=Extras())
    build = building_part(build or load_suite(job.case.suite).build, name, job)
    try:
        session = Session(job, announce, build, compilers)
        session.open()
        status, found, _, _ = session.prepare(compiler)
    except JobFailed as failed:
        return Verdict(status=failed.status, why=failed.failure.message)
    worst = found.worst if found is not None and found.failed else None
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
        return judge(job, compiler, name, build, compilers, announce)

    whole = tried(candidate)
    if not whole.wrong:
        said = f": {whole.why}" if whole.why else ""
        return Where(stage="", note=f"in a fresh worker, {candidate} ends as {whole.status.value}{said}")
    compiler, stage, why = candidate, OWN, whole.why
    for earlier in _before(candidate):
        found = tried(earlier)
        if found.wrong:
            compiler, stage, why = earlier, STAGES[earlier], found.why
            break
    name, kind, why, trials, complete = _smallest(job, build, lambda part: tried(compiler, part), why)
    script = ""
    if folder is not None:
        path = folder / f"repro-{file_name(candidate)}.py"
        path.write_text(write_script(job, compiler, name, why, path.name), encoding="utf-8")
        script = path.name
    return Where(
        stage=stage,
        compiler=compiler,
        module=name,
        module_class=kind,
        why=why,
        trials=trials,
        repro=script,
        note="" if complete else f"the search ended after {trials} submodules: a smaller one may fail, too",
    )


def _before(candidate: str) -> Iterator[str]:
    for stage in STAGES:
        if stage == candidate:
            return
        yield stage


def _smallest(
    job: Job, build: Build, tried: Callable[[str], Verdict], why: str
) -> tuple[str, str, str, int, bool]:
    """Name, class, failure, number of trials, and whether the search was complete."""
    name, trials = "", 0
    known: set[Any] = set()
    while True:
        seed_everything(job.protocol.seed)
        workload = build(job.case)
        inside = list(called_inside(workload.module, name))
        given = given_to(workload, inside, job)
        of_class = type(workload.module.get_submodule(name)).__name__
        for child in inside:
            if child not in given:
                continue
            kind = _kind(workload.module.get_submodule(child), given[child])
            if kind in known:
                continue
            if trials == MOST:
                return name, of_class, why, trials, False
            known.add(kind)
            trials += 1
            found = tried(child)
            if found.wrong:
                name, why = child, found.why
                break
        else:
            return name, of_class, why, trials, True


def _kind(module: nn.Module, given: Any) -> Any:
    shapes = tuple((path, tuple(t.shape), str(t.dtype)) for path, t in named_tensors(given, "given"))
    return type(module), repr(module), shapes
