"""The texts that explain a number: graph breaks, recompilations, kernels that changed."""

from __future__ import annotations

from collections.abc import Iterator

from runner.reports._sections import Section, compiler_name

TEXTS = {
    "graph_break_reasons": "graph breaks",
    "recompile_reasons": "recompilations",
    "candidate_kernel_changes": "time of one step by kernel, eager -> compiled, the largest changes first",
}


def explanations(part: Section) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(what of which model and compiler, its lines), in the order of the section's table."""
    for comparison in part.comparisons:
        record = comparison.record
        for metric, what in TEXTS.items():
            text = record.metrics.get(metric)
            if isinstance(text, str) and text.strip():
                title = f"{record.job.case.name}, {compiler_name(record.candidate)}: {what}"
                yield title, tuple(line for line in text.splitlines() if line.strip())
