"""``compare()``: measures the compilers of one model from Python."""

from __future__ import annotations

import importlib
import inspect
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from harness import devices
from harness.backends import backend_names, registered, why_no_own_setting, why_no_such_setting
from harness.backends.settings.candidates import compiler_of
from harness.loading.own_compiler import safe_label
from harness.protocol import DROPOUT
from harness.schema import BASELINE, Case, CompilerOptions, Extras, Job, Mode, Protocol, Record
from harness.settings import Kind, is_own_model, placed
from runner.cli.commands import job_command
from runner.engine import JobContext, Place
from runner.engine.executors import Timed
from runner.engine.job_run import JobRun
from runner.engine.launch import measure_job
from runner.errors import UsageError, unknown
from runner.plan.checks import check
from runner.plan.compilers import named_compilers, with_availability
from runner.plan.config import DEVICE, RunConfig
from runner.plan.probe import asking_for, check_jobs, check_threads, missing_devices
from runner.plan.settings import Names, check_values, value_of
from runner.store.run_folder import RunFolder
from torchduet.caller import LocalWorker, left_as_it_was, python_left_as_it_was
from torchduet.progress import shown, tell
from torchduet.result import Result

if TYPE_CHECKING:
    import torch

    from harness.program import Compile, Compilers
    from harness.workload import Workload

    Given = str | Callable[..., Any]

MODES = (Mode.TRAINING.value, Mode.INFERENCE.value)
NOT_ISOLATED = (
    "not isolated: measured in the calling process, where other work may disturb the times; a model by name, "
    "'package.module:function', has a process of its own, and may have several"
)
ARGUMENTS = Names({"modes": "mode", "dtypes": "dtype", "devices": "device"})
HERE = "this process"  # the place in names of what the calling process has
HOLDERS: Mapping[str, type] = {"protocol": Protocol, "options": CompilerOptions, "extras": Extras}
"""The arguments of ``compare()`` that hold settings."""
EXAMPLE = "for example compilers=['inductor']"
IN_A_WORKER = (
    *("extras.allocator", "extras.profiler_trace"),
    *("extras.compile_runs", "extras.start_up", "extras.shapes"),
    *("extras.localize", "protocol.isolate", "protocol.processes", "protocol.max_memory_bytes"),
    "protocol.phase_timeouts_s",
)
"""Settings that need a worker process."""
T = TypeVar("T")


def compare(
    model: torch.nn.Module | Callable[..., Any] | str,
    inputs: Any = (),
    *,
    compilers: Given | Sequence[Given] = ("inductor",),
    mode: str | None = None,
    loss: Callable[..., torch.Tensor] | None = None,
    target: Any = None,
    batches: Any = None,
    trajectory: int | None = None,
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

    model: a float32 module or a function: a copy of it, and of the modules that a function uses, is measured
        in this process. Or the text ``"file.py:function"`` or ``"package.module:function"``: a worker process
        calls this function and measures the model that it returns.
    inputs: a tensor, a tuple of positional arguments or a mapping of named ones; not for a model by name.
    compilers: one or several names of ``--list-compilers``, also with settings
        (``"inductor[freezing=True]"``), names that are registered with ``torch.compile``, functions, or texts
        ``"file.py:function"``. ``"eager"`` is the A/A control.
    mode: ``"training"`` or ``"inference"``. Default: the module's ``training``, which is true for a new
        module; a function without modules trains if an input requires a gradient; a model by name trains.
    loss: ``loss(output, target)`` or ``loss(output)``, for training. Default: the output's ``loss``, or else
        its mean; a note says which.
    target: the target of the loss.
    batches: for ``trajectory``: a list of other ``inputs``, or a function of the number of a step, from 0.
        With a ``target``, each is a pair of inputs and target. Without it, every step has ``inputs``.
    trajectory: so many training steps of eager, of four noisy eagers and of each compiler from the same
        weights: docs/NUMERICS.md. Short for ``extras=Extras(trajectory=...)``.
    optimizer: a function of a list of parameters, such as ``torch.optim.AdamW``, or a word of
        ``--optimizer``: a training step ends with what it makes.
    dtype: a word of ``--dtypes``, or ``torch.bfloat16``, ``torch.float16``, ``torch.float32``.
    device: default: that of the parameters.
    dropout: ``"neutralize"``: dropout runs and drops nothing. ``"keep"``: it has its own probabilities.
    protocol: how to measure, as ``Protocol(repeat=30)``.
    options: options of the compilers, as ``CompilerOptions(nopython=True)``.
    extras: further measurements, as ``Extras(explain=True)``.
    output_dir: a new folder for records, logs and the job file; without it, nothing is kept.
    progress: ``True``, ``False``; by default in a notebook and on a terminal.

    torch's settings and the random number generators are restored at the end.

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
        refuse_given(inputs=inputs, loss=loss, target=target, batches=batches)
    with python_left_as_it_was() if named else left_as_it_was():
        workload = None if named else _workload(model, inputs, loss, target, batches)
        given = holder("protocol", Protocol, protocol)
        given = replace(given, keep_dropout=given.keep_dropout or dropout == "keep")
        given, workload = with_optimizer(given, workload, optimizer)
        module = model if workload is None else workload.module
        place = device_name(device, module, inputs)
        names, own, here = candidates_for(compilers, isolated=named)
        further = holder("extras", Extras, extras)
        further = further if trajectory is None else replace(further, trajectory=trajectory)
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
            extras=further,
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
        try:
            folder = RunFolder.create(Path(path), (job,), ("torchduet.compare",))
        except UsageError as error:
            raise UsageError(str(error).removesuffix(", or use --resume")) from None
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


def _workload(model: Any, inputs: Any, loss: Any, target: Any, batches: Any) -> Workload:
    from harness.loading.own_model_build import workload_of

    try:
        return workload_of(model, inputs, loss, target, batches)
    except TypeError as error:
        raise UsageError(str(error)) from None


# -- the arguments, checked: ``UsageError`` --------------------------------------------------------


def holder(name: str, kind: type[T], value: T | None) -> T:
    """The settings of this argument. ``UsageError`` that shows how to write them."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    values = value.items() if isinstance(value, dict) else ()
    words = ", ".join(f"{key}={part!r}" for key, part in values) or "..."
    raise UsageError(f"{name}: it is a {type(value).__name__}; write {name}={kind.__name__}({words})")


def refuse_others(others: Mapping[str, object], known: Collection[str]) -> None:
    """``UsageError`` for an argument that ``compare()`` does not have, with the place of a setting."""
    for name, value in others.items():
        for argument, kind in HOLDERS.items():
            if name in (field.name for field in fields(kind)):
                write = f"{argument}={kind.__name__}({name}={value!r})"
                raise UsageError(f"{name}: compare() has no such argument; write {write}")
        raise unknown("compare()", name, "argument", {*known} - {"others"})


def with_optimizer(
    protocol: Protocol, workload: Workload | None, given: Given | None
) -> tuple[Protocol, Workload | None]:
    """Both with the optimizer that is given: a name, a function or None."""
    source: Any = protocol.optimizer if given is None else given
    if callable(given):
        label = safe_label(getattr(given, "__name__", type(given).__name__))
        source = f"{HERE}:{label}" if workload is not None else _source_of(given, "optimizer")
        workload = workload and replace(workload, optimizer=given)
    elif not isinstance(source, str):
        must = "it must be a name or a function, such as torch.optim.AdamW"
        raise UsageError(f"optimizer: {must}, not of type {type(source).__name__}")
    return replace(protocol, optimizer=source), workload


def refuse_given(**arguments: Any) -> None:
    """``UsageError`` for an argument that belongs to a module, beside a model by name."""
    for name, value in arguments.items():
        if value is not None and not (isinstance(value, tuple) and not value):
            raise UsageError(f"{name}: a model by name has its own; return it from the function")


def candidates_for(
    given: Given | Sequence[Given], *, isolated: bool
) -> tuple[tuple[str, ...], dict[str, str], dict[str, Compile]]:
    """The names in the given order; label -> the function's source; label -> the function itself.

    ``isolated``: a worker process compiles and must import functions by name.
    """
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    wanted: list[Any] = [given] if alone else [*cast("Sequence[Given]", given)]
    if not wanted:
        raise UsageError(f"compilers: it is empty; give at least one compiler, {EXAMPLE}")
    for compiler in wanted:
        if not isinstance(compiler, str) and not callable(compiler):
            raise UsageError(f"compilers: {compiler!r} is neither a name nor a function; write {EXAMPLE}")
    if isolated:
        wanted = [each if isinstance(each, str) else _source_of(each) for each in wanted]
    labels = _labels([each for each in wanted if not isinstance(each, str)])
    names, own = named_compilers([labels.get(id(each), str(each)) for each in wanted], "compilers")
    if isolated:
        return names, own, {}
    from harness.backends.shared.own_compiler import compiler as own_compiler

    functions: dict[str, Given] = {labels[id(each)]: each for each in wanted if not isinstance(each, str)}
    try:
        here = {name: own_compiler(name, function)[1] for name, function in (functions | own).items()}
    except LookupError as error:
        raise UsageError(f"compilers: {error}") from None
    unsure = [name for name in names if name not in here and name not in backend_names()]
    known = {*backend_names(), *registered()} if unsure else set()
    for name in unsure:
        if compiler_of(name) not in known:
            raise unknown("compilers", compiler_of(name), "compiler", known)
        if why := why_no_own_setting(name):
            raise UsageError(f"compilers: {why}")
    return names, own, here


def _labels(functions: Sequence[Callable[..., Any]]) -> dict[int, str]:
    """``id`` of each function -> its name, with a number added if the name is taken."""
    labels: dict[int, str] = {}
    for fn in {id(fn): fn for fn in functions}.values():
        plain = safe_label(getattr(fn, "__name__", type(fn).__name__))
        taken = {BASELINE, *labels.values(), *backend_names()}
        numbered = (f"{plain}-{number}" for number in itertools.count(2))
        labels[id(fn)] = next(label for label in itertools.chain([plain], numbered) if label not in taken)
    return labels


def _source_of(function: Callable[..., Any], argument: str = "compilers") -> str:
    """``package.module:function``, with which a worker imports the function."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if module != "__main__" and name.isidentifier():
        imported = getattr(importlib.import_module(module), name, None) if module else None
        if imported is function:
            return f"{module}:{name}"
    known = getattr(function, "__name__", function)
    raise UsageError(
        f"{argument}: {known} exists in this process only, but a worker process measures a model by name; "
        "put the function into a file and write 'file.py:function', or give the model as a module"
    )


def device_name(given: str | torch.device | None, model: Any, inputs: Any) -> str:
    """The given device, else that of the module's parameters, else that of the inputs, else the CPU."""
    name = str(given) if given is not None else _device_of(model, inputs)
    value_of("device", DEVICE, name)
    why = None if isinstance(model, str) else devices.of(name).why_missing()
    if isinstance(model, str) and devices.of(name).accelerated:
        why = missing_devices([name]).get(name)
    if why:
        raise UsageError(f"device: {name} is not there ({why}); use device='cpu'")
    return name


def _device_of(model: Any, inputs: Any) -> str:
    if isinstance(model, str):
        return "cpu"
    from harness.tensors import named_tensors

    tensors = [*model.parameters(), *model.buffers()] or [t for _, t in named_tensors(inputs, "inputs")]
    places = sorted({str(tensor.device) for tensor in tensors})
    if len(places) > 1:
        raise UsageError(
            f"device: the model is on {' and '.join(places)}; move it to one of them, or name it: "
            f"device={places[-1]!r}"
        )
    return places[0] if places else "cpu"


def check_job(job: Job, workload: Workload | None) -> None:
    """Raises the command line's ``UsageError`` for this job, with the names of the arguments.

    And one for what the process that measures cannot do: this one if it has the ``workload``, else a worker.
    """
    for path in IN_A_WORKER if workload is not None else ():
        argument, _, name = path.partition(".")
        if getattr(getattr(job, argument), name) != getattr(HOLDERS[argument](), name):
            raise UsageError(
                f"{path}: needs a worker process; give the model as 'package.module:function' "
                "instead of a module, or leave this argument out"
            )
    asked = {name: getattr(job, name) for name in HOLDERS}
    config = RunConfig(suites=(), modes=(job.case.mode,), dtypes=(job.dtype,), devices=(job.device,), **asked)
    check_values(config, RunConfig(suites=(), modes=config.modes), ARGUMENTS)
    check(config, ARGUMENTS)
    check_threads(job, "protocol.threads")
    if workload is not None:
        from harness.loading.input_checks import why_not_trainable

        if why := why_no_such_setting(job.options.inductor_config):
            raise UsageError(f"options.inductor_config: {why}")
        if job.case.mode is Mode.TRAINING and (why := why_not_trainable(workload)):
            raise UsageError(f"model: {why}")
        return
    unsure = tuple(name for name in job.candidates if name not in backend_names())
    try:
        if unsure:
            with_availability((replace(job, candidates=unsure),), asking_for((job,)), skip=False)
        check_jobs((job,))
    except UsageError as error:
        raise UsageError(str(error).replace("--backend: ", "compilers: ")) from None


def absolute(source: str) -> str:
    """``file.py:function`` with the file's absolute path. ``UsageError`` if there is no such file."""
    return str(value_of(source, Kind(placed), source))
