"""The field's result files, its own columns first and in its order, ours after them.

``{compiler}_{suite}_{dtype}_{mode}_{device}_{performance|accuracy}.csv``. A
missing number is an empty cell. ``speedup`` is the field's ratio of medians,
``speedup_paired`` with its interval is ours. Times are of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.schema import Parity, TensorError
from runner.comparison import Comparison, Noise, Summary, Work
from runner.labels import file_part, ran_batch
from runner.reports._cells import Cell, csv_bytes
from runner.reports._sections import Section, sections

FORMATS = ("csv",)
Columns = dict[str, Callable[[Comparison], Cell]]


def render(summary: Summary) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    for section in sections(summary):
        for compiler in section.compilers:
            mine = [c for c in section.comparisons if c.compiler == compiler]
            timed = [c for c in mine if c.record.job.protocol.performance]
            checked = [c for c in mine if c.record.job.protocol.accuracy]
            if timed:
                files[_file_name(compiler, section, "performance")] = _table(PERFORMANCE, timed)
            if checked:
                files[_file_name(compiler, section, "accuracy")] = _table(ACCURACY, checked)
    return files


def _file_name(compiler: str, section: Section, testing: str) -> str:
    parts = (compiler, section.suite, section.dtype, section.mode, section.device)
    return "_".join((*map(file_part, parts), testing)) + ".csv"


def _table(columns: Columns, comparisons: Iterable[Comparison]) -> bytes:
    rows = ([cell(comparison) for cell in columns.values()] for comparison in comparisons)
    return csv_bytes(tuple(columns), rows)


def _metric(name: str) -> Callable[[Comparison], Cell]:
    return lambda c: c.record.metrics.get(name)


def _parity(cell: Callable[[Parity], Cell]) -> Callable[[Comparison], Cell]:
    return lambda c: cell(c.record.parity) if c.record.parity is not None else None


def _worst(cell: Callable[[TensorError], Cell]) -> Callable[[Comparison], Cell]:
    return _parity(lambda parity: cell(parity.worst) if parity.worst is not None else None)


def _work(cell: Callable[[Work], Cell]) -> Callable[[Comparison], Cell]:
    return lambda c: cell(c.work) if c.work is not None else None


def _noise(cell: Callable[[Noise], Cell]) -> Callable[[Comparison], Cell]:
    return lambda c: cell(c.noise) if c.noise is not None else None


def _failure(comparison: Comparison) -> Cell:
    failure = comparison.record.failure
    return f"{failure.phase}: {failure.kind}: {failure.message}" if failure is not None else None


FIRST: Columns = {
    "dev": lambda c: c.record.job.device,
    "name": lambda c: c.record.job.case.name,
    "batch_size": lambda c: ran_batch(c.record),
}
COUNTERS: Columns = {
    name: _metric(name)
    for name in (
        "calls_captured",
        "unique_graphs",
        "graph_breaks",
        "unique_graph_breaks",
        "autograd_captures",
        "autograd_compiles",
        "cudagraph_skips",
    )
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
COMPILATION: Columns = {
    name: _metric(name)
    for name in (
        "cold_compilation_latency_s",
        "warm_compilation_latency_s",
        "compile_dynamo_s",
        "compile_aot_autograd_s",
        "compile_inductor_s",
        "compile_inductor_code_generation_s",
        "compile_kernel_compiler_s",
        "compile_cache_saved_s",
        "compile_backward_s",
        "recompiles",
        "compile_cache_hits",
        "compile_cache_misses",
    )
}
WORK: Columns = {
    "flops_per_step": _metric("flops_per_step"),
    "saved_activation_bytes": _metric("saved_activation_bytes"),
    "baseline_tflop_per_s": _work(lambda w: w.baseline_tflop_per_s),
    "candidate_tflop_per_s": _work(lambda w: w.candidate_tflop_per_s),
    "baseline_mfu_data_sheet": _work(lambda w: w.baseline_share_of_data_sheet),
    "candidate_mfu_data_sheet": _work(lambda w: w.candidate_share_of_data_sheet),
    "baseline_mfu_measured": _work(lambda w: w.baseline_share_of_measured),
    "candidate_mfu_measured": _work(lambda w: w.candidate_share_of_measured),
    "data_sheet_peak_flop_per_s": _metric("data_sheet_peak_flop_per_s"),
    "measured_peak_flop_per_s": _metric("measured_peak_flop_per_s"),
    "bytes_per_step": _metric("bytes_per_step"),
    "baseline_gb_per_s": _work(lambda w: w.baseline_gb_per_s),
    "candidate_gb_per_s": _work(lambda w: w.candidate_gb_per_s),
    "baseline_share_of_bandwidth": _work(lambda w: w.baseline_share_of_bandwidth),
    "candidate_share_of_bandwidth": _work(lambda w: w.candidate_share_of_bandwidth),
    "measured_bandwidth_bytes_per_s": _metric("measured_bandwidth_bytes_per_s"),
    "flop_per_byte": _work(lambda w: w.flop_per_byte),
    "baseline_share_of_roof": _work(lambda w: w.baseline_share_of_roof),
    "candidate_share_of_roof": _work(lambda w: w.candidate_share_of_roof),
    "item": _work(lambda w: w.item),
    "baseline_items_per_s": _work(lambda w: w.baseline_items_per_s),
    "candidate_items_per_s": _work(lambda w: w.candidate_items_per_s),
    "baseline_energy_per_step_j": _metric("baseline_energy_per_step_j"),
    "candidate_energy_per_step_j": _metric("candidate_energy_per_step_j"),
}
NOISE: Columns = {
    "processes": lambda c: c.processes,
    "sd_between_processes": lambda c: c.between_sd,
    "baseline_cv": _noise(lambda n: n.baseline_cv),
    "candidate_cv": _noise(lambda n: n.candidate_cv),
    "lag_1_autocorrelation": _noise(lambda n: n.lag_1),
    "baseline_minor_faults_per_step": _noise(lambda n: n.baseline_minor_faults),
    "candidate_minor_faults_per_step": _noise(lambda n: n.candidate_minor_faults),
    "stolen_cpu_share": _noise(lambda n: n.stolen_share),
    "involuntary_switches_per_s": _noise(lambda n: n.involuntary_switches_per_s),
    "throttled_share": _noise(lambda n: n.throttled_share),
    "gpu_clock_min_mhz": _noise(lambda n: n.gpu_clock_min_mhz),
    "gpu_clock_max_mhz": _noise(lambda n: n.gpu_clock_max_mhz),
    "gpu_throttle_reasons": _noise(lambda n: n.gpu_throttle_reasons),
    "allocator": lambda c: c.record.job.extras.allocator if c.n else None,
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
    "notes": lambda c: "; ".join(c.record.notes) or None,
    "reproduce": lambda c: c.record.reproduce or None,
}
PERFORMANCE: Columns = {
    **FIRST,
    "speedup": lambda c: c.speedup_of_medians,
    "abs_latency": lambda c: c.candidate_ms,
    "compilation_latency": lambda c: c.compilation_latency_s,
    "compression_ratio": lambda c: c.memory_ratio,
    "eager_peak_mem": lambda c: c.baseline_peak_gb,
    "dynamo_peak_mem": lambda c: c.candidate_peak_gb,
    **COUNTERS,
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
    "iterations_per_sample": lambda c: c.record.samples.iterations_per_sample if c.record.samples else None,
    "break_even_steps": lambda c: c.break_even_steps,
    "compiled_region": _metric("compiled_region"),
    **SIZE,
    **PARITY,
    **LAST,
    **COMPILATION,
    **WORK,
    **NOISE,
    **GENERATION,
}
ACCURACY: Columns = {
    **FIRST,
    "accuracy": lambda c: c.record.status.value,
    **COUNTERS,
    # the field's columns end here
    "compiled_region": _metric("compiled_region"),
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
    **LAST,
}
