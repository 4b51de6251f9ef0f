"""Comparing one model's compilers from Python."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends import backend_names
from harness.own_model import is_own_model
from harness.schema import DTYPES, Case, CompilerOptions, Extras, Job, Mode, Protocol, Record
from runner.derive import summarise
from runner.errors import UsageError, unknown
from runner.execute import JobRun
from runner.run_folder import RunFolder
from torchduet.local_worker import LocalWorker

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from harness.workload import Workload
    from runner.comparison import Comparison, Summary

HERE = "this process"  # the suite's name of a model that no worker can be told of
NOT_ISOLATED = "not isolated: measured in the calling process, with whatever else it was doing"
TABLE_WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out: prints as the table. ``isolated`` says whether a process of its own measured it."""

    records: tuple[Record, ...]
    isolated: bool
    folder: Path | None = None

    @property
    def summary(self) -> Summary:
        return summarise(self.records)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Speedup, interval, p, q and verdict of each compiler, in the order given."""
        return self.summary.comparisons

    def __getitem__(self, compiler: str) -> Comparison:
        """The comparison of one compiler with eager. ``KeyError`` for one that was not asked for."""
        for comparison in self.comparisons:
            if comparison.record.candidate == compiler:
                return comparison
        raise KeyError(compiler)

    def table(self, width: int = TABLE_WIDTH) -> str:
        """The report as the command line prints it, in ``width`` characters."""
        from rich.console import Console

        from runner.reports.console import print_report

        text = io.StringIO()
        print_report(self.summary, Console(file=text, width=width, color_system=None))
        if not self.isolated:
            text.write(f"{NOT_ISOLATED[0].upper()}{NOT_ISOLATED[1:]}.\n")
        return text.getvalue()

    def __str__(self) -> str:
        return self.table()

    def plot(self, path: str | Path | None = None) -> Figure:
        """The forest plot of speedups with their intervals; written to ``path`` (PNG) if given.

        ``ValueError`` when nothing was timed.
        """
        from runner.reports._pictures import png
        from runner.reports._sections import compilers, sections
        from runner.reports.speedup_plot import draw

        summary = self.summary
        panels = [section for section in sections(summary) if section.rounds]
        if not panels:
            raise ValueError("nothing was timed, so there is nothing to draw; print the result to see why")
        figure = draw(panels, compilers(summary))
        if path is not None:
            Path(path).write_bytes(png(figure))
        return figure


def compare(
    model: torch.nn.Module | str,
    inputs: Any = (),
    *,
    compilers: Sequence[str] = ("inductor",),
    mode: str = "training",
    loss: Callable[[Any, Any], torch.Tensor] | None = None,
    target: Any = None,
    dtype: str = "float32",
    device: str = "cpu",
    protocol: Protocol | None = None,
    options: CompilerOptions | None = None,
    extras: Extras | None = None,
    output_dir: str | Path | None = None,
) -> Result:
    """Measures eager against ``compilers`` in pairs, checks parity, and returns a ``Result``.

    ``model`` is a module, with ``inputs`` a tensor, a tuple of positional ones or a mapping of
    named ones, in float32 on the CPU: it is copied, never changed, and measured in this process,
    which ``Result.isolated`` says. Or it is the text ``"package.module:function"``
    (see ``harness.own_model``): a worker process of its own then builds and measures it.

    ``loss(output, target)`` is for training; without it, the output's own ``loss`` or else its
    mean is taken. ``protocol`` sets rounds, seed, precision and the parity rule, ``options`` what is
    asked of the compilers, ``extras`` what else is to be found out. With ``output_dir``, records, logs
    and job file are kept there as the command line keeps them.

    Raises ``runner.errors.UsageError`` (a sentence) for a compiler, mode or precision that does not exist,
    and for what only a worker process can do (another allocator, empty compile caches, a limit of memory)
    where the model is a module.
    Whatever the model or a compiler does ends in a record with its status.
    """
    protocol, extras = protocol or Protocol(), extras or Extras()
    _check(compilers, mode, dtype)
    named = isinstance(model, str)
    if not named:
        _check_possible_here(protocol, extras)
    if isinstance(model, str) and not is_own_model(model):
        raise unknown("model", model, "model", ["package.module:function", "file.py:function"])
    case = Case(
        suite=model if isinstance(model, str) else HERE,
        name=model.rpartition(":")[2] if isinstance(model, str) else type(model).__name__,
        mode=Mode(mode),
        batch_size=None,
        published_batch_size=None,
    )
    job = Job(
        case=case,
        device=device,
        dtype=dtype,
        candidates=tuple(dict.fromkeys(compilers)),
        protocol=protocol,
        options=options or CompilerOptions(),
        extras=extras,
    )
    with _folder(output_dir) as place:
        folder = RunFolder.create(Path(place), (job,), ("torchduet.compare",))
        log = folder.open_case(job)
        if named:
            records = _measured_by_workers(job, folder, log)
        else:
            records = _measured_here(job, _workload(model, inputs, loss, target), folder, log)
        for record in records:
            folder.append(record)
    kept = None if output_dir is None else folder.path
    return Result(records=tuple(records), isolated=named, folder=kept)


def _check(compilers: Sequence[str], mode: str, dtype: str) -> None:
    steps = [Mode.TRAINING.value, Mode.INFERENCE.value]
    for argument, given, noun, known in (
        *(("compilers", name, "compiler", backend_names()) for name in compilers),
        ("mode", mode, "mode", steps),
        ("dtype", dtype, "precision", DTYPES),
    ):
        if given not in known:
            raise unknown(argument, given, noun, known)


def _folder(output_dir: str | Path | None) -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory() if output_dir is None else nullcontext(str(output_dir))


def _check_possible_here(protocol: Protocol, extras: Extras) -> None:
    """``UsageError`` for what needs a process of its own."""
    for name, asked in (
        ("extras.allocator", extras.allocator != Extras().allocator),
        ("extras.cold_start", extras.cold_start),
        ("extras.warm_start", extras.warm_start),
        ("extras.profiler_trace", extras.profiler_trace),
        ("protocol.isolate", protocol.isolate),
        ("protocol.processes", protocol.processes > 1),
        ("protocol.max_memory_bytes", protocol.max_memory_bytes is not None),
        ("protocol.phase_timeouts_s", bool(protocol.phase_timeouts_s)),
    ):
        if asked:
            raise UsageError(
                f"{name}: needs a process of its own; name the model as 'package.module:function' "
                "instead of giving a module, or leave this out"
            )


def _measured_by_workers(job: Job, folder: RunFolder, log: Path) -> list[Record]:
    from runner.executors import Work
    from runner.executors.local import Watch, worker_records

    def nobody(event: object) -> None: ...

    work = Work(job=job, candidates=job.candidates)
    log_name = folder.relative(log)
    return list(worker_records(work, Watch(job, nobody), lambda: False, log=log, log_name=log_name))


def _measured_here(job: Job, workload: Workload, folder: RunFolder, log: Path) -> list[Record]:
    def launch(part: Job) -> LocalWorker:
        return LocalWorker(lambda _: workload)

    run = JobRun(job, launch, _Quiet(), candidates=job.candidates, log=folder.relative(log))
    return [_marked(record) for record in run.run()]


def _workload(model: Any, inputs: Any, loss: Any, target: Any) -> Workload:
    import torch

    from harness.own_model_build import loss_of_output
    from harness.workload import Workload

    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model must be a torch module or 'package.module:function', not a {type(model).__name__}"
        )
    args: tuple[Any, ...] = ()
    if not isinstance(inputs, Mapping):
        args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Workload(
        module=model,
        args=args,
        kwargs=dict(inputs) if isinstance(inputs, Mapping) else {},
        target=target,
        loss=loss or loss_of_output,
    )


def _marked(record: Record) -> Record:
    return dataclasses.replace(record, reproduce="", notes=(*record.notes, NOT_ISOLATED))


class _Quiet:
    """A watcher that tells nobody."""

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...
