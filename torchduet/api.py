"""``compare()``: measures the compilers of one model from Python."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.protocol import DROPOUT
from harness.schema import Case, CompilerOptions, Extras, Job, Mode, Protocol, Record
from harness.settings import is_own_model
from runner.cli.commands import job_command
from runner.engine import JobContext, Place
from runner.engine.executors import Timed
from runner.engine.job_run import JobRun
from runner.engine.launch import measure_job
from runner.errors import UsageError, unknown
from torchduet.asked import (
    HERE,
    absolute,
    candidates_for,
    check_job,
    device_name,
    holder,
    new_folder,
    refuse_given,
    refuse_others,
    with_optimizer,
)
from torchduet.caller import left_as_it_was, python_left_as_it_was
from torchduet.local_worker import LocalWorker
from torchduet.progress import shown, tell
from torchduet.result import Result

if TYPE_CHECKING:
    import torch

    from harness.program import Compilers
    from harness.workload import Workload
    from torchduet.asked import Given

MODES = (Mode.TRAINING.value, Mode.INFERENCE.value)
NOT_ISOLATED = (
    "not isolated: measured in the calling process, where other work may disturb the times; a model by name, "
    "'package.module:function', has a process of its own, and may have several"
)


def compare(
    model: torch.nn.Module | Callable[..., Any] | str,
    inputs: Any = (),
    *,
    compilers: Given | Sequence[Given] = ("inductor",),
    mode: str | None = None,
    loss: Callable[..., torch.Tensor] | None = None,
    target: Any = None,
    optimizer: Callable[..., Any] | str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    dropout: str = "neutralize",
    protocol: Protocol | None = None,
    options: CompilerOptions | None = None,
    extras: Extras | None = None,
    output_dir: str | Path | None = None,
    progress: bool | None = None,
    **others: NoReturn,
) -> Result:
    """Times eager and ``compilers`` in pairs, checks parity, and returns a ``Result``.

    ``model`` is a float32 module or a function, ``inputs`` a tensor, a tuple of positional arguments or a
    mapping of named arguments. A copy of it, and of the modules that a function uses, is measured in this
    process. Or ``model`` is the text ``"file.py:function"`` or ``"package.module:function"``, and a worker
    process builds and measures it.

    ``mode`` is "training" or "inference"; without it, the module's ``training`` decides. A function without
    modules trains if an input requires a gradient. ``loss(output, target)`` or ``loss(output)`` is for
    training; without it, the loss is the output's ``loss``, or else the output's mean. A training step ends
    with what ``optimizer(parameters)`` makes, such as ``torch.optim.AdamW``, or with one by name, as
    ``--optimizer`` takes it. ``dropout="keep"`` leaves dropout as it is. ``protocol`` sets rounds, seed, CI
    width and the parity rule, ``options`` the compilers' options, ``extras`` further measurements.
    ``output_dir`` keeps records, logs and job file.

    ``compilers`` are names (of this program, or registered with ``torch.compile``), functions, or the texts
    ``"file.py:function"``. Progress is shown in a notebook and on a terminal; ``progress=True`` shows it
    always, False never. torch's settings and the random number generators are restored at the end.

    Raises ``runner.errors.UsageError`` (one sentence) for bad input. A failure of the model or of a compiler
    ends in a record with its status.
    """
    refuse_others(others, inspect.signature(compare).parameters)
    named = isinstance(model, str)
    if isinstance(model, str) and not is_own_model(model):
        raise unknown("model", model, "model", ["package.module:function", "file.py:function"])
    if dropout not in DROPOUT:
        raise unknown("dropout", str(dropout), "treatment", DROPOUT)
    if mode not in (None, *MODES):
        raise unknown("mode", str(mode), "mode", MODES)
    if named:
        refuse_given(inputs=inputs, loss=loss, target=target)
    with python_left_as_it_was() if named else left_as_it_was():
        workload = None if named else _workload(model, inputs, loss, target)
        given = holder("protocol", Protocol, protocol)
        given = replace(given, keep_dropout=given.keep_dropout or dropout == "keep")
        given, workload = with_optimizer(given, workload, optimizer)
        module = model if workload is None else workload.module
        place = device_name(device, module, inputs)
        names, own, here = candidates_for(compilers, isolated=named)
        job = Job(
            case=Case(
                suite=absolute(model) if isinstance(model, str) else HERE,  # workers run in another folder
                name=_name_of(model),
                mode=Mode(mode or ("training" if getattr(module, "training", True) else "inference")),
                batch_size=None,
                published_batch_size=None,
            ),
            device=place,
            dtype=str(dtype).removeprefix("torch."),  # torch.bfloat16 and "bfloat16" are the same
            candidates=names,
            own_compilers=own,
            protocol=replace(given, optimizer=absolute(given.optimizer)) if named else given,
            options=holder("options", CompilerOptions, options),
            extras=holder("extras", Extras, extras),
        )
        check_job(job, workload)
        before = () if mode is not None else (_note_on_mode(module, job.case.mode),)
        notes = before, () if workload is None else (NOT_ISOLATED,)
        measure = partial(_records, workload=workload, here=here, progress=progress, notes=notes)
        records, folder = measure(job, output_dir)
        return Result(
            records=records, isolated=named, folder=folder, _again=lambda other: measure(other, None)[0]
        )


def _records(
    job: Job,
    output_dir: str | Path | None,
    *,
    workload: Workload | None,
    here: Compilers,
    progress: bool | None,
    notes: tuple[tuple[str, ...], tuple[str, ...]],
) -> tuple[tuple[Record, ...], Path | None]:
    """The records of the job, and the folder that keeps them.

    A model by name is measured by worker processes, any other by this process. ``notes``: before those of a
    record, and after them.
    """
    surroundings = nullcontext() if workload is None else left_as_it_was()
    place: AbstractContextManager[str] = (
        tempfile.TemporaryDirectory() if output_dir is None else nullcontext(str(output_dir))
    )
    with surroundings, place as path, shown(progress) as view:  # a second thread waits first
        folder = new_folder(path, job)
        log = folder.open_case(job)
        context = JobContext(
            candidates=job.candidates,
            place=Place(logs={"": folder.relative(log)}, folder=log.parent),
            reproduce=job_command if workload is None else lambda *_: "",  # no command has this process's
            doing=partial(tell, job, view),
            timed=lambda done, pairs: view.event(Timed(job=job, done=done, pairs=pairs)),
        )
        if workload is None:
            steps = measure_job(job, context, log)
        else:
            worker = partial(LocalWorker, lambda _: workload, here, log, context.doing)
            steps = JobRun(job, lambda _: nullcontext(worker()), context).run()
        records = []
        for measured in steps:
            record = replace(measured, notes=(*notes[0], *measured.notes, *notes[1]))
            folder.append(record)
            if output_dir is None and record.failure is not None:  # the folder will be deleted
                record = replace(record, failure=replace(record.failure, log=None))
            records.append(record)
            view.event(record)
    return tuple(records), None if output_dir is None else folder.path


def _note_on_mode(model: Any, mode: Mode) -> str:
    from harness.loading.own_model_build import Function

    if isinstance(model, str):
        why = "for a model by name"
    elif isinstance(model, Function):
        why = f"as {'a' if model.training else 'no'} module or input of the function can be trained"
    else:
        why = f"as model.training is {model.training}"
    return f"mode: {mode.value}, {why}; use mode= to change it"


def _name_of(model: Any) -> str:
    """The name of a function; else the class of the module, inside of what torch.compile made."""
    if isinstance(model, str):
        return model.rpartition(":")[2]
    if inspect.isroutine(model):
        return getattr(model, "__name__", "function").strip("<>")
    return type(getattr(model, "_orig_mod", model)).__name__


def _workload(model: Any, inputs: Any, loss: Any, target: Any) -> Workload:
    from harness.loading.own_model_build import workload_of

    try:
        return workload_of(model, inputs, loss, target)
    except TypeError as error:
        raise UsageError(str(error)) from None
