"""Result files with the columns of PyTorch's benchmark runner first, in its order, then torchduet's columns.

``{compiler}_{suite}_{dtype}_{mode}_{device}_{performance|accuracy}.csv``. A
missing number is an empty cell. ``speedup`` is the ratio of medians, as in
PyTorch's runner; ``speedup_paired``, with an interval, is torchduet's. Times are of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.declared import COMPILATION, COMPILED, FIELD, NOISE, OTHER, WORK
from harness.metrics import declared
from harness.schema import Parity, TensorError
from runner.analysis.comparison import Comparison, Summary
from runner.labels import file_part, notes_of, ran_batch
from runner.reports.parts.cells import Cell, csv_bytes
from runner.reports.parts.sections import Section, sections

FORMATS = ("csv",)
Columns = dict[str, Callable[[Comparison], Cell]]


def render(summary: Summary) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    for section in sections(summary):
        for compiler in section.compilers:
            comparisons = [c for c in section.comparisons if c.compiler == compiler]
            timed = [c for c in comparisons if c.record.job.protocol.performance]
            checked = [c for c in comparisons if c.record.job.protocol.accuracy]
            if timed:
                files[_file_name(compiler, section, "performance")] = _table(_performance(), timed)
            if checked:
                files[_file_name(compiler, section, "accuracy")] = _table(_accuracy(), checked)
    return files


def _file_name(compiler: str, section: Section, testing: str) -> str:
    parts = (compiler, section.suite, section.dtype, section.mode, section.device)
    return "_".join((*map(file_part, parts), testing)) + ".csv"


def _table(columns: Columns, comparisons: Iterable[Comparison]) -> bytes:
    rows = ([cell(comparison) for cell in columns.values()] for comparison in comparisons)
    return csv_bytes(tuple(columns), rows)


def _metric(name: str) -> Callable[[Comparison], Cell]:
    return lambda c: c.value(name)


def _declared(group: str) -> Columns:
    """The metrics' columns of this group."""
    return {header: _metric(name) for header, name in declared().of_csv(group).items()}


def _parity(cell: Callable[[Parity], Cell]) -> Callable[[Comparison], Cell]:
    return lambda c: cell(c.record.parity) if c.record.parity is not None else None


def _worst(cell: Callable[[TensorError], Cell]) -> Callable[[Comparison], Cell]:
    return _parity(lambda parity: cell(parity.worst) if parity.worst is not None else None)


def _failure(comparison: Comparison) -> Cell:
    failure = comparison.record.failure
    return f"{failure.phase}: {failure.kind}: {failure.message}" if failure is not None else None


FIRST: Columns = {
    "dev": lambda c: c.record.job.device,
    "name": lambda c: c.record.job.case.name,
    "batch_size": lambda c: ran_batch(c.record),
}
SIZE: Columns = {
    "published_batch_size": lambda c: c.record.job.case.published_batch_size,
    "scale": lambda c: c.record.job.case.scale,
    "parameters": lambda c: c.record.model.parameters if c.record.model is not None else None,
    "input_shapes": lambda c: "; ".join(c.record.model.input_shapes) if c.record.model is not None else None,
    "changes": lambda c: " ".join(c.record.job.case.changes) or None,
}
PARITY: Columns = {
    "tolerance": _parity(lambda p: p.tolerance),
    "worst_tensor": _worst(lambda w: w.name),
    "worst_tensor_eager_error": _worst(lambda w: w.eager_rmse),
    "worst_tensor_candidate_error": _worst(lambda w: w.candidate_rmse),
    "worst_tensor_allowed_error": _worst(lambda w: w.allowed),
}
STEADINESS: Columns = {
    "processes": lambda c: c.processes,
    "sd_between_processes": lambda c: c.between_sd,
    "df_between_processes": lambda c: c.between_df,
    "assumed_sd_between_processes": lambda c: c.assumed_sd,
    "low_90": lambda c: c.low_90,
    "high_90": lambda c: c.high_90,
    "unsteady": lambda c: c.unsteady,
    "baseline_cv": _metric("baseline_cv"),
    "candidate_cv": _metric("candidate_cv"),
    "lag_1_autocorrelation": _metric("lag_1"),
    "baseline_minor_faults_per_step": _metric("baseline_minor_faults"),
    "candidate_minor_faults_per_step": _metric("candidate_minor_faults"),
}
GENERATION: Columns = {
    "baseline_prefill_ms": lambda c: c.generation.prefill.baseline_ms if c.generation else None,
    "candidate_prefill_ms": lambda c: c.generation.prefill.candidate_ms if c.generation else None,
    "prefill_speedup": lambda c: c.generation.prefill.speedup if c.generation else None,
    "decode_speedup": lambda c: c.generation.decode.speedup if c.generation and c.generation.decode else None,
    "baseline_tokens_per_s": lambda c: c.generation.baseline_tokens_per_s if c.generation else None,
    "candidate_tokens_per_s": lambda c: c.generation.candidate_tokens_per_s if c.generation else None,
}
LAST: Columns = {
    "failure": _failure,
    "notes": lambda c: "; ".join(notes_of(c.record)) or None,
    "reproduce": lambda c: c.record.reproduce or None,
}


def _performance() -> Columns:
    return {
        **FIRST,
        "speedup": lambda c: c.speedup_of_medians,
        "abs_latency": lambda c: c.candidate_ms,
        "compilation_latency": lambda c: c.compilation_latency_s,
        "compression_ratio": lambda c: c.memory_ratio,
        "eager_peak_mem": lambda c: c.baseline_peak_gb,
        "dynamo_peak_mem": lambda c: c.candidate_peak_gb,
        **_declared(FIELD),
        # the field's columns end here
        "status": lambda c: c.record.status.value,
        "baseline_latency_ms": lambda c: c.baseline_ms,
        "speedup_paired": lambda c: c.speedup,
        "ci_low": lambda c: c.ci_low,
        "ci_high": lambda c: c.ci_high,
        "p_value": lambda c: c.p_value,
        "q_value": lambda c: c.q_value,
        "verdict": lambda c: c.verdict.value if c.verdict is not None else None,
        "n": lambda c: c.n or None,
        "iterations_per_sample": lambda c: (
            c.record.samples.iterations_per_sample if c.record.samples else None
        ),
        "break_even_steps": lambda c: c.break_even_steps,
        **_declared(COMPILED),
        **SIZE,
        **PARITY,
        **LAST,
        **_declared(COMPILATION),
        **_declared(WORK),
        **STEADINESS,
        **_declared(NOISE),
        "allocator": lambda c: c.record.job.extras.allocator if c.n else None,
        **GENERATION,
        **_declared(OTHER),
    }


def _accuracy() -> Columns:
    return {
        **FIRST,
        "accuracy": lambda c: c.record.status.value,
        **_declared(FIELD),
        # the field's columns end here
        **_declared(COMPILED),
        **SIZE,
        "parity_rule": _parity(lambda p: p.rule),
        "reference": _parity(lambda p: p.reference),
        "multiplier": _parity(lambda p: p.multiplier),
        "tensors": _parity(lambda p: p.tensors),
        "failed": _parity(lambda p: p.failed),
        **PARITY,
        "worst_tensor_scale": _worst(lambda w: w.scale),
        "worst_tensor_candidate_max": _worst(lambda w: w.candidate_max),
        "worst_tensor_allowed_max": _worst(lambda w: w.allowed_max),
        "worst_tensor_failure": _worst(lambda w: w.failure),
        "eager_bit_equal": _parity(lambda p: p.eager_bit_equal),
        "eager_spread": _parity(lambda p: p.eager_spread),
        "resolution_median": _parity(lambda p: p.resolution_median),
        "resolution_largest": _parity(lambda p: p.resolution_largest),
        "found_by": _parity(lambda p: p.found_by),
        **LAST,
    }
