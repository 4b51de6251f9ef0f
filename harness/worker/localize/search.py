"""Finds where a candidate goes wrong, judged by the rule of parity and nothing else, or by its bits.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.backends.settings.candidates import file_name
from harness.codec import from_json
from harness.devices import of
from harness.failures import JobFailed
from harness.loading.dropout import neutralize
from harness.loading.suite_files import load_suite
from harness.numerics.bits import other_bits
from harness.program import Compilers
from harness.protocol import BITWISE
from harness.schema import Case, Extras, Job, Mode, Status, Where
from harness.tensors import map_tensors, named_tensors
from harness.timing.step import seed_everything
from harness.worker.localize.script import NOT_RUN, NOT_SHOWN, SHOWN, write_script
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Build, Workload

STAGES = {
    "dynamo_eager": "capture",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
}
OWN = "code generation"
MOST = 60  # submodules that are compiled

Announce = Callable[[Activity], None]
Verdict = tuple[Status, str]
"""The verdict on one compiler, and why it fails."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of a call."""


def judge(
    job: Job,
    compiler: str,
    name: str,
    build: Build,
    compilers: Compilers | None,
    announce: Announce,
    then: Callable[[Session], None] = lambda _: None,
) -> Verdict:
    """Compiles the submodule ``name`` ("" is the whole model) and checks parity, or bits, without timing.

    ``then`` gets the session of what has run.
    """
    torch._dynamo.reset()  # noqa: SLF001 - the graphs of the compilation before would count against limits
    bitwise = job.extras.localize == BITWISE
    protocol = replace(job.protocol, accuracy=not bitwise, performance=False)
    if name:  # a part may have no parameter, and has a loss of its own
        protocol = replace(protocol, optimizer="none")
        job = replace(job, case=replace(job.case, loss="own"))
    job = replace(job, candidates=(compiler,), protocol=protocol, extras=Extras())
    try:
        session = Session(job, announce, partial(_part, build, name, job) if name else build, compilers)
        session.open()
        status, parity, _, _ = session.prepare(compiler)
        if bitwise:
            eager = session.whole_results()
            if differs := other_bits(eager, session.whole_results()):
                return Status.EAGER_TWO_RUNS_DIFFER, differs
            why = other_bits(eager, session.whole_results(compiler))
            status = Status.FAIL_ACCURACY if why else Status.PASS
        then(session)
    except JobFailed as failed:
        return failed.status, failed.failure.message
    if bitwise:
        return status, why
    worst = parity.worst if parity is not None and parity.failed else None
    return status, f"{worst.name}: {worst.failure}" if worst is not None else ""


def localize(
    job: Job,
    candidate: str,
    folder: Path | None = None,
    build: Build | None = None,
    compilers: Compilers | None = None,
    announce: Announce = lambda _: None,
) -> Where:
    """The stage and the smallest submodule. Writes ``repro-<candidate>.py`` into ``folder``.

    For a process of its own: it compiles the model once for each stage, and many of its parts. ``build``
    makes the whole workload (default: the suite's).
    """
    if job.case.mode is Mode.GENERATE:
        return Where(stage="", note="generated text is not localized")
    build, bitwise = build or load_suite(job.case.suite).build, job.extras.localize == BITWISE

    def tried(compiler: str, name: str = "") -> Verdict:
        doing = Activity(phase="localize", variant=f"{name or 'the whole model'} with {compiler}")
        return judge(job, compiler, name, build, compilers, lambda _: announce(doing))

    status, why = tried(candidate)
    if status is not Status.FAIL_ACCURACY:
        ends = "has eager's bits" if bitwise and status is Status.PASS else f"ends as {status.value}"
        note = f"in a fresh worker, {candidate} {ends}{why and f': {why}'}"
        return Where(stage="", note=note, bitwise=bitwise)
    compiler, stage = candidate, STAGES.get(candidate, OWN)
    # a right decomposition changes bits, and a compiler other than inductor may not decompose
    stages = STAGES if not bitwise or candidate.startswith("inductor") else ()
    for earlier in takewhile(lambda name: name != candidate, stages):
        status, reason = tried(earlier)
        if status is Status.FAIL_ACCURACY:
            compiler, stage, why = earlier, STAGES[earlier], reason
            break
    where = _smallest(job, build, partial(tried, compiler), why)
    where = replace(where, stage=stage, compiler=compiler, bitwise=bitwise)
    if folder is None:
        return where
    path = folder / f"repro-{file_name(candidate)}.py"
    path.write_text(write_script(job, compiler, where.module, where.why, path.name), encoding="utf-8")
    return replace(where, repro=path.name)


def _smallest(job: Job, build: Build, tried: Callable[[str], Verdict], why: str) -> Where:
    """The smallest submodule that fails, and why; the whole model fails because of ``why``."""

    def inner(name: str) -> Iterator[tuple[str, nn.Module, Arguments]]:
        seed_everything(job.protocol.seed)
        work = build(job.case)
        names = list(called_inside(work.module, name))
        arguments = given_to(work, names, job)
        return ((n, work.module.get_submodule(n), given) for n, given in arguments.items())

    seed_everything(job.protocol.seed)
    where, known = Where(stage="", module_class=type(build(job.case).module).__name__, why=why), set[Any]()
    inside = inner("")
    while (child := next(inside, None)) is not None:
        name, part, arguments = child
        shapes = tuple((path, tuple(t.shape), str(t.dtype)) for path, t in named_tensors(arguments, "given"))
        if (kind := (type(part), repr(part), shapes)) in known:
            continue
        if len(known) == MOST:
            note = f"the search ended after {MOST} submodules: a smaller one may fail"
            where = replace(where, note=note)
            break
        known.add(kind)
        status, reason = tried(name)
        if status is Status.FAIL_ACCURACY:
            where = replace(where, module=name, module_class=type(part).__name__, why=reason)
            inside = inner(name)
    return replace(where, trials=len(known))


def replay(job_as_json: Any, compiler: str, name: str) -> int:
    """For the script: prints the verdict on the submodule compiled alone; returns the exit code."""
    job = from_json(Job, job_as_json)
    if why_not := of(job.device).why_missing():
        print(f"this machine cannot run it: {why_not}", file=sys.stderr)
        return NOT_RUN
    of_torch = list[str]()

    def ask(session: Session) -> None:
        of_torch.append(session.verdict_of_torch(compiler))

    status, why = judge(job, compiler, name, load_suite(job.case.suite).build, None, lambda _: None, ask)
    bits = job.extras.localize == BITWISE and status is Status.FAIL_ACCURACY
    word = "other bits" if bits else status.value
    lines = filter(None, (f"{compiler} on {name or 'the whole model'}: {word}", why, *of_torch))
    print(*lines, sep="\n")
    return {Status.FAIL_ACCURACY: SHOWN, Status.PASS: NOT_SHOWN}.get(status, NOT_RUN)


# -- a submodule as a workload of its own --------------------------------------------------------


def given_to(workload: Workload, names: Sequence[str], job: Job) -> dict[str, Arguments]:
    """The arguments of the first call of each of these submodules in one forward of eager, in float32.

    In the order of these calls. Submodules that are not called, or whose call has no tensor, are left out.
    """
    arguments: dict[str, Arguments] = {}

    def watch(name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name not in arguments and any(True for _ in named_tensors((args, kwargs), "given")):
            arguments[name] = map_tensors((args, kwargs), lambda tensor: tensor.detach().clone())

    module = workload.module
    module.train(job.case.mode is Mode.TRAINING and not job.protocol.use_eval_mode)
    if not job.protocol.keep_dropout:
        neutralize(module)
    hooks = [
        module.get_submodule(name).register_forward_pre_hook(partial(watch, name), with_kwargs=True)
        for name in names
    ]
    try:
        seed_everything(job.protocol.seed)
        with torch.no_grad():
            module(*workload.args, **workload.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return arguments


def _part(build: Build, name: str, job: Job, case: Case) -> Workload:
    """The submodule ``name``. Training differentiates by its weights and by its arguments."""
    workload = build(case)
    arguments = given_to(workload, [name], job)
    if name not in arguments:
        raise LookupError(f"eager does not call the submodule {name!r}")
    training = case.mode is Mode.TRAINING
    args, kwargs = map_tensors(
        arguments[name], lambda tensor: tensor.requires_grad_(training and tensor.is_floating_point())
    )
    part = workload.module.get_submodule(name)
    return Workload(module=part, args=args, kwargs=kwargs, loss=weighted_squares if training else None)


def weighted_squares(output: Any, _: Any) -> torch.Tensor:
    """A loss whose gradient differs from element to element, so that no part of the output is ignored."""
    terms = []
    for _name, tensor in named_tensors(output, "output"):
        if tensor.is_floating_point() and tensor.requires_grad:
            values = tensor.flatten().float()
            weights = torch.linspace(0.5, 1.5, values.numel(), device=values.device)
            terms.append((values.square() * weights).mean())
    return torch.stack(terms).sum()


def called_inside(module: nn.Module, name: str) -> Iterator[str]:
    """The names of the submodules just below ``name`` that have a forward: containers give their contents."""
    for child, part in module.get_submodule(name).named_children():
        full = f"{name}.{child}" if name else child
        if isinstance(part, (nn.ModuleList, nn.ModuleDict)):
            yield from called_inside(module, full)
        else:
            yield full
