"""Checks the arguments of ``compare()`` and turns them into a job's settings. Raises ``UsageError``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import devices
from harness.backends import backend_names
from harness.loading.own_compiler import safe_label
from harness.schema import CompilerOptions, Extras, Job, Mode, Protocol
from runner.errors import UsageError, unknown
from runner.plan.checks import check
from runner.plan.compilers import named_compilers, with_availability
from runner.plan.config import RunConfig
from runner.plan.possible import check_name
from runner.plan.probe import asking_for, missing_devices
from runner.plan.settings import ArgumentNames, check_values

if TYPE_CHECKING:
    import torch

    from harness.program import Compiled, Program
    from harness.workload import Workload

    Compile = Callable[[Program], Compiled]
    Given = str | Callable[..., Any]

ARGUMENTS = ArgumentNames({"modes": "mode", "dtypes": "dtype", "devices": "device"})
EXAMPLE = "for example compilers=['inductor']"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """``names`` in the given order. ``own``: label -> function's source; ``here``: label -> its function."""

    names: tuple[str, ...]
    own: Mapping[str, str] = field(default_factory=dict)
    here: Mapping[str, Compile] = field(default_factory=dict)


def candidates_for(given: Given | Sequence[Given], *, isolated: bool) -> Candidates:
    """The candidates. ``isolated``: a worker process compiles and must import functions by name."""
    wanted = [given] if isinstance(given, str) or callable(given) else list(given)
    if not wanted:
        raise UsageError(f"compilers: it is empty; give at least one compiler, {EXAMPLE}")
    for one in wanted:
        if not isinstance(one, str) and not callable(one):
            raise UsageError(f"compilers: {one!r} is neither a name nor a function; write {EXAMPLE}")
    if isolated:
        wanted = [one if isinstance(one, str) else _source_of(one) for one in wanted]
    functions = _labels([one for one in wanted if not isinstance(one, str)])
    texts = [functions[id(one)] if not isinstance(one, str) else one for one in wanted]
    named = named_compilers(texts, "compilers")
    if isolated:
        return Candidates(names=named.names, own=named.own)
    here = {functions[id(one)]: _own(functions[id(one)], one) for one in wanted if not isinstance(one, str)}
    here |= {name: _own(name, source) for name, source in named.own.items()}
    _check_registered([name for name in named.names if name not in here])
    return Candidates(names=named.names, own=named.own, here=here)


def _labels(functions: Sequence[Callable[..., Any]]) -> dict[int, str]:
    """``id`` of each function -> its name, with a number added if the name is taken."""
    labels: dict[int, str] = {}
    for one in {id(one): one for one in functions}.values():
        name = getattr(one, "__name__", type(one).__name__)
        label = plain = "lambda" if name == "<lambda>" else safe_label(name)
        number = 2
        while label in labels.values() or label in backend_names():
            label, number = f"{plain}-{number}", number + 1
        labels[id(one)] = label
    return labels


def _own(name: str, function: Given) -> Compile:
    own: Any = importlib.import_module("harness.backends").own_backend
    try:
        found: Compile = own(name, function)
    except LookupError as error:
        raise UsageError(f"compilers: {error}") from None
    return found


def _source_of(function: Callable[..., Any]) -> str:
    """``package.module:function``, with which a worker imports the function."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if module != "__main__" and name.isidentifier():
        found = getattr(importlib.import_module(module), name, None) if module else None
        if found is function:
            return f"{module}:{name}"
    known = getattr(function, "__name__", function)
    raise UsageError(
        f"compilers: {known} exists in this process only, but a worker process measures a model by name; "
        "put the function into a file and write 'file.py:function', or give the model as a module"
    )


def _check_registered(names: Iterable[str]) -> None:
    """Raises ``UsageError`` for a name that is neither bundled nor registered with torch in this process."""
    unsure = [name for name in names if name not in backend_names()]
    if not unsure:
        return
    known = importlib.import_module("harness.backends").registered()
    for name in unsure:
        if name not in known:
            raise unknown("compilers", name, "compiler", (*backend_names(), *known))


def check_in_a_worker(job: Job) -> None:
    """Raises ``UsageError`` if the worker's interpreter cannot use a compiler that is not bundled."""
    unsure = tuple(name for name in job.candidates if name not in backend_names())
    if not unsure:
        return
    import dataclasses

    try:
        with_availability((dataclasses.replace(job, candidates=unsure),), asking_for((job,)), skip=False)
    except UsageError as error:
        words = str(error).removeprefix("--compilers: ").removeprefix("--backend: ")
        raise UsageError(f"compilers: {words}") from None


def check_workload(workload: Workload, job: Job) -> None:
    """Raises ``UsageError`` for an unknown setting of inductor, or a model that cannot be trained."""
    why = importlib.import_module("harness.backends").why_no_such_setting(job.options.inductor_config)
    if why is not None:
        raise UsageError(f"options.inductor_config: {why}")
    if job.case.mode is Mode.TRAINING:
        why = importlib.import_module("harness.loading.given").why_not_trainable(workload)
    if why is not None:
        raise UsageError(f"model: {why}".replace("use --inference", "give mode='inference'"))


def dtype_name(given: str | torch.dtype) -> str:
    """``torch.bfloat16`` and ``"bfloat16"`` are the same."""
    return str(given).removeprefix("torch.")


def device_name(given: str | torch.device | None, model: Any, inputs: Any) -> str:
    """The given device, else that of the module's parameters, else that of the inputs, else the CPU."""
    name = str(given) if given is not None else _device_of(model, inputs)
    check_name(name, "device")
    missing: dict[str, str] = {}
    if isinstance(model, str):
        missing = missing_devices([name]) if devices.of(name).accelerated else {}
    elif why := devices.of(name).why_missing():
        missing = {name: why}
    for why in missing.values():
        raise UsageError(f"device: {name} is not there ({why}); use device='cpu'")
    return name


def _device_of(model: Any, inputs: Any) -> str:
    if isinstance(model, str) or not hasattr(model, "parameters"):
        return "cpu"
    named_tensors = importlib.import_module("harness.tensors").named_tensors
    tensors = [*model.parameters(), *model.buffers()] or [t for _, t in named_tensors(inputs, "inputs")]
    places = sorted({str(tensor.device) for tensor in tensors})
    if len(places) > 1:
        raise UsageError(
            f"device: the model is on {' and '.join(places)}; move it to one of them, or name it: "
            f"device={places[-1]!r}"
        )
    return places[0] if places else "cpu"


def check_settings(
    *,
    mode: Mode,
    dtype: str,
    device: str,
    protocol: Protocol,
    options: CompilerOptions,
    extras: Extras,
) -> None:
    """Raises the command line's ``UsageError`` for these settings, with the names of the arguments."""
    config = RunConfig(
        suites=(),
        modes=(mode,),
        dtypes=(dtype,),
        devices=(device,),
        protocol=protocol,
        options=options,
        extras=extras,
    )
    check_values(config, RunConfig(suites=(), modes=config.modes), ARGUMENTS)
    check(config, ARGUMENTS)


def check_folder(output_dir: str | Path | None) -> None:
    """Raises ``UsageError`` if the folder cannot be written or is not empty."""
    if output_dir is None:
        return
    path = Path(output_dir)
    above = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not os.access(above, os.W_OK):
        raise UsageError(f"output_dir: {path} cannot be written; give another folder")
    if path.exists() and not path.is_dir():
        raise UsageError(f"output_dir: {path} is a file; give a new folder")
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(
            f"output_dir: {path} holds files already; give a new folder, or leave output_dir out to keep none"
        )
