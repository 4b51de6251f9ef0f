"""``compare()``: measures the compilers of one model from Python."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.loading.own_model import is_own_model
from harness.protocol import DROPOUT
from harness.schema import Case, CompilerOptions, Extras, Job, Mode, Protocol, Record
from runner.cli.commands import job_command
from runner.engine import Place
from runner.engine.job_run import JobRun
from runner.engine.launch import measure_job
from runner.errors import UsageError, unknown
from runner.store.run_folder import RunFolder
from torchduet.asked import (
    Candidates,
    candidates_for,
    check_folder,
    check_in_a_worker,
    check_settings,
    check_workload,
    device_name,
    holder,
    refuse_others,
)
from torchduet.caller import left_as_it_was
from torchduet.local_worker import LocalWorker
from torchduet.progress import Progress, shown
from torchduet.result import Result, without_files
from torchduet.words import NOT_ISOLATED

if TYPE_CHECKING:
    import torch

    from harness.workload import Workload
    from torchduet.asked import Given

HERE = "this process"  # the suite's name for a module of the calling process


def compare(
    model: torch.nn.Module | str,
    inputs: Any = (),
    *,
    compilers: Given | Sequence[Given] = ("inductor",),
    mode: str | None = None,
    loss: Callable[..., torch.Tensor] | None = None,
    target: Any = None,
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

    ``model`` is a float32 module, with ``inputs``: a tensor, a tuple of positional arguments or a mapping
    of named arguments. A copy of the module is measured in this process (``Result.isolated`` is False), on
    the device of its parameters unless ``device`` names another. Or ``model`` is the text
    ``"package.module:function"`` (see ``harness.loading.own_model``). Then a worker process builds and
    measures the model.

    ``mode`` is "training" or "inference". Without it, the module's ``training`` decides, and the records'
    notes say so. ``loss(output, target)`` or ``loss(output)`` is for training. Without it, the loss is the
    output's ``loss``, or else the output's mean. ``dropout="neutralize"`` sets the probability in the copy
    to a value that drops nothing; ``"keep"`` leaves it unchanged. ``protocol`` sets rounds, seed, CI width
    and the parity rule, ``options`` the compilers' options, ``extras`` further measurements. With
    ``output_dir``, records, logs and job file are kept there, as the command line keeps them.

    ``compilers`` are names (of this program, or registered with ``torch.compile``), functions, or the
    texts ``"file.py:function"`` and ``"package.module:function"``: see ``harness.loading.own_compiler``.
    Progress is shown in a notebook and on a terminal; ``progress=True`` shows it always, False never.
    torch's settings and the random number generators are restored at the end. The model's output goes to
    the log.

    Raises ``runner.errors.UsageError`` (one sentence) for an unknown compiler, mode or precision, and for
    a module with a setting that needs a worker process (another allocator, empty compile caches, a memory
    limit). A failure of the model or of a compiler ends in a record with its status.
    """
    refuse_others(others, inspect.signature(compare).parameters)
    protocol = holder("protocol", Protocol, protocol)
    named = isinstance(model, str)
    if isinstance(model, str) and not is_own_model(model):
        raise unknown("model", model, "model", ["package.module:function", "file.py:function"])
    assumed = _mode_of(model) if mode is None else None
    if dropout not in DROPOUT:
        raise unknown("dropout", dropout, "treatment", DROPOUT)
    modes = [Mode.TRAINING.value, Mode.INFERENCE.value]
    if (mode := assumed or mode) not in modes:
        raise unknown("mode", str(mode), "mode", modes)
    workload = None if named else _workload(model, inputs, loss, target)
    job = Job(
        case=Case(
            suite=model if isinstance(model, str) else HERE,
            name=_name_of(model),
            mode=Mode(mode),
            batch_size=None,
            published_batch_size=None,
        ),
        device=device_name(device, model, inputs),
        dtype=str(dtype).removeprefix("torch."),  # torch.bfloat16 and "bfloat16" are the same
        candidates=(),
        protocol=replace(protocol, keep_dropout=protocol.keep_dropout or dropout == "keep"),
        options=holder("options", CompilerOptions, options),
        extras=holder("extras", Extras, extras),
    )
    check_settings(job, isolated=named)
    check_folder(output_dir)
    chosen = candidates_for(compilers, isolated=named)
    job = replace(job, candidates=chosen.names, own_compilers=dict(chosen.own))
    if workload is None:
        check_in_a_worker(job)
    else:
        check_workload(workload, job)
    surroundings = nullcontext() if workload is None else left_as_it_was()
    with _folder(output_dir) as path, shown(job, progress) as seen, surroundings:
        folder = RunFolder.create(Path(path), (job,), ("torchduet.compare",))
        log = folder.open_case(job)
        records = []
        for measured in (
            _measured_by_workers(job, folder, log, seen)
            if workload is None
            else _measured_here(job, workload, chosen, folder, log, seen)
        ):
            record = _noted(measured, assumed, model)
            folder.append(record)
            records.append(record if output_dir is not None else without_files(record))
            seen.ended(record)
    return Result(records=tuple(records), isolated=named, folder=None if output_dir is None else folder.path)


def _mode_of(model: Any) -> str:
    mode = Mode.TRAINING if getattr(model, "training", True) else Mode.INFERENCE
    return str(mode.value)


def _noted(record: Record, assumed: str | None, model: Any) -> Record:
    """The record with a note on the mode, if ``compare()`` was called without one."""
    if assumed is None:
        return record
    why = "for a model by name" if isinstance(model, str) else f"as model.training is {model.training}"
    note = f"mode: {assumed}, {why}; use mode= to change it"
    return replace(record, notes=(note, *record.notes))


def _name_of(model: Any) -> str:
    """The function of a model by name; else the class of the module, inside of what torch.compile made."""
    if isinstance(model, str):
        return model.rpartition(":")[2]
    return type(getattr(model, "_orig_mod", model)).__name__


def _folder(output_dir: str | Path | None) -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory() if output_dir is None else nullcontext(str(output_dir))


def _measured_by_workers(job: Job, folder: RunFolder, log: Path, seen: Progress) -> Iterator[Record]:
    yield from measure_job(
        job,
        job.candidates,
        seen,
        lambda: False,
        log=log,
        log_name=folder.relative(log),
        reproduce=job_command,
    )


def _measured_here(
    job: Job, workload: Workload, chosen: Candidates, folder: RunFolder, log: Path, seen: Progress
) -> Iterator[Record]:
    def launch(part: Job) -> LocalWorker:
        return LocalWorker(lambda _: workload, chosen.here, log, seen.activity)

    run = JobRun(
        job,
        launch,
        seen,
        candidates=job.candidates,
        place=Place(logs={"": folder.relative(log)}),
        reproduce=lambda *_: "",  # a command cannot name a module of this process
    )
    for record in run.run():
        yield replace(record, notes=(*record.notes, NOT_ISOLATED))


def _workload(model: Any, inputs: Any, loss: Any, target: Any) -> Workload:
    from harness.loading.own_model_build import workload_of

    try:
        return workload_of(model, inputs, loss, target)
    except TypeError as error:
        raise UsageError(str(error)) from None
