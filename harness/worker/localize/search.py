"""Finds where a candidate goes wrong, judged by the rule of parity and nothing else.

First the stage. The compilers of ``STAGES`` are inductor, stopped after one stage more each: the first that
fails names the stage. A candidate whose earlier stages are all right is wrong in its own code generation.

Then the submodule. Each submodule is compiled alone, on copies of the inputs that eager gives it, and goes
through the whole check: outputs, gradients of its weights and inputs, steps in a row, other data. The search
goes down from the model: it enters the first submodule that fails, and ends where none inside fails. Of
submodules of one kind (class, configuration and shapes of inputs) one is tried. A fault that needs two
submodules together ends at the submodule that holds both.

If everything that was tried has failed, leaves of other classes are tried, too. If all of these fail as well,
the fault is in the whole backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.backends.settings.candidates import file_name, named, parts_of
from harness.failures import JobFailed
from harness.loading.suite_files import load_suite
from harness.precision import precision
from harness.program import Compilers
from harness.schema import Extras, Job, Mode, Status, Where
from harness.tensors import named_tensors
from harness.timing.step import seed_everything
from harness.worker.localize.script import write_script
from harness.worker.localize.submodules import building_part, called_inside, given_to
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Build, Workload

STAGES = {
    "dynamo_eager": "capture",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
}
OWN = "code generation"
EMULATE = "emulate_precision_casts"  # inductor's setting
MOST = 60  # submodules that are compiled
MOST_ELSEWHERE = 3  # leaves of other classes, to tell a fault of one layer from one of the whole backend

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

    whole = tried(candidate)
    if not whole.wrong:
        said = f": {whole.why}" if whole.why else ""
        return Where(stage="", note=f"in a fresh worker, {candidate} ends as {whole.status.value}{said}")
    compiler, stage, why = candidate, STAGES.get(candidate, OWN), whole.why
    for earlier in takewhile(lambda name: name != candidate, STAGES):
        verdict = tried(earlier)
        if verdict.wrong:
            compiler, stage, why = earlier, STAGES[earlier], verdict.why
            break
    part = Search(job, build, partial(tried, compiler), why=why)
    part.run()
    cure = _rounding_as_eager(job, candidate) if stage == OWN else ""
    script = ""
    if folder is not None:
        path = folder / f"repro-{file_name(candidate)}.py"
        path.write_text(write_script(job, compiler, part.name, part.why, path.name), encoding="utf-8")
        script = path.name
    return Where(
        stage=stage,
        compiler=compiler,
        module=part.name,
        module_class=part.class_of(part.name),
        why=part.why,
        trials=part.trials,
        repro=script,
        note="" if part.complete else f"the search ended after {MOST} submodules: a smaller one may fail",
        everywhere=part.everywhere,
        cure=cure if cure and tried(cure).status is Status.PASS else "",
    )


def _rounding_as_eager(job: Job, candidate: str) -> str:
    """In reduced precision: inductor that also rounds inside its kernels, where eager rounds; else ""."""
    compiler, settings = parts_of(candidate)
    reduced = precision(job.dtype, job.device).reduced
    if not (reduced and compiler.startswith("inductor")) or any(EMULATE in text for text in settings):
        return ""
    return named(compiler, (*settings, f"{EMULATE}=True"))


@dataclass(slots=True)
class Search:
    """The search for the smallest submodule that fails: ``name`` ("" is the whole model), and ``why``."""

    job: Job
    build: Build
    tried: Callable[[str], Verdict]
    why: str
    name: str = ""
    trials: int = 0
    passed: int = 0
    complete: bool = True
    everywhere: bool = False  # leaves of all classes that were tried fail
    _workload: Workload = field(init=False)
    _known: set[Any] = field(default_factory=set)

    def run(self) -> None:
        self._workload = self._built()
        while (worse := self._worse_inside()) is not None:
            self.name, self.why = worse
        if self.name and self.trials and not self.passed:
            leaves = self._leaves_of_other_classes()
            verdicts = [self._try(leaf) for leaf in leaves]
            self.everywhere = bool(leaves) and all(verdict.wrong for verdict in verdicts)

    def class_of(self, name: str) -> str:
        return type(self._workload.module.get_submodule(name)).__name__

    def _built(self) -> Workload:
        seed_everything(self.job.protocol.seed)
        return self.build(self.job.case)

    def _try(self, name: str) -> Verdict:
        self.trials += 1
        verdict = self.tried(name)
        self.passed += verdict.status is Status.PASS
        return verdict

    def _worse_inside(self) -> tuple[str, str] | None:
        """The first submodule just below ``name`` that fails, and why."""
        inside = list(called_inside(self._workload.module, self.name))
        arguments = given_to(self._built(), inside, self.job)
        for child in filter(arguments.__contains__, inside):
            kind = _kind(self._workload.module.get_submodule(child), arguments[child])
            if kind in self._known:
                continue
            if self.trials == MOST:
                self.complete = False
                return None
            self._known.add(kind)
            verdict = self._try(child)
            if verdict.wrong:
                return child, verdict.why
        return None

    def _leaves_of_other_classes(self) -> list[str]:
        modules = self._workload.module.named_modules()
        leaves = [name for name, module in modules if name and not any(module.children())]
        arguments = given_to(self._built(), leaves, self.job)
        first = {self.class_of(name): name for name in reversed(leaves) if name in arguments}
        first.pop(self.class_of(self.name), None)
        return list(first.values())[:MOST_ELSEWHERE]


def _kind(module: nn.Module, arguments: Any) -> Any:
    shapes = tuple((path, tuple(t.shape), str(t.dtype)) for path, t in named_tensors(arguments, "given"))
    return type(module), repr(module), shapes
