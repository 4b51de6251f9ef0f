"""CSV files with the columns of PyTorch's benchmark runner first, in its order, then torchduet's columns.

``speedup`` is the ratio of medians, as in PyTorch's runner; ``speedup_paired``, with an interval, is
torchduet's. All programs read the files alike: UTF-8, Unix line ends, no text that is a formula.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from harness.declared import COMPILATION
from runner.analysis.columns import KEY, NUMERICS, OF_PYTORCH, PARITY, RECORD, SIZE, columns, frame
from runner.analysis.results import Summary
from runner.names import file_part, plain
from runner.reports.parts.sections import compilers, sections

FORMATS = ("csv",)
FROM_TIMES = (
    *("speedup", "abs_latency", "compilation_latency"),
    *("compression_ratio", "eager_peak_mem", "dynamo_peak_mem"),
)
VERDICT = (
    *("compiler", "verdict", "open_because", "speedup", "ci_low", "ci_high", "p_value", "q_value"),
    *("n", "processes", "baseline_ms"),
)
"""The columns behind those of PyTorch's runner; then follow the others that a result of the run has."""
OF_ACCURACY = (KEY, SIZE, PARITY, NUMERICS, RECORD, COMPILATION)
"""The groups of torchduet's columns in the files of the accuracy check; the others have all groups."""
# PyTorch's header means another number; its check_graph_breaks.py reads the other name
RENAMED = {"speedup": "speedup_paired", "eager_fallbacks": "fallbacks_to_eager"}


def render(summary: Summary) -> Mapping[str, bytes]:
    """A file for each compiler, section and what was tested. A missing number is an empty cell."""
    files: dict[str, bytes] = {}
    every = frame(summary.comparisons, columns().values())
    for own, values in every.select_dtypes(["string", "boolean"]).items():
        every[own] = values.map(_safe_text, "ignore")
    ordered = [*VERDICT, *(name for name in every if name not in VERDICT and every[name].notna().any())]
    places = {id(comparison): place for place, comparison in enumerate(summary.comparisons)}
    for section in sections(summary):
        for compiler in compilers(section):
            parts = map(file_part, (compiler, section.suite, section.dtype, section.mode, section.device))
            name = "_".join(parts)
            for testing in ("performance", "accuracy"):
                timed = testing == "performance"
                rows = [c for c in section.comparisons if c.compiler == compiler]
                rows = [c for c in rows if getattr(c.record.job.protocol, testing)]
                headers = {n: h for h, n in OF_PYTORCH.items() if h not in (FROM_TIMES, "accuracy")[timed]}
                others = [n for n in ordered if timed or columns()[n].group in OF_ACCURACY]
                headers |= {n: RENAMED.get(n, n) for n in others if n not in headers}
                table = every.iloc[[places[id(row)] for row in rows]][[*headers]].rename(columns=headers)
                if rows:
                    text: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
                    files[f"{name}_{testing}.csv"] = text.encode()
    return files


def _safe_text(value: object) -> str:
    """One printable line. Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    line = str(value).lower() if isinstance(value, bool) else plain(str(value))
    # some spreadsheets also accept the full-width characters of East Asian keyboards
    start = unicodedata.normalize("NFKC", line.lstrip()[:1])
    return f"'{line}" if start.startswith(("=", "+", "-", "@")) else line
