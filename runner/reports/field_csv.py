"""Result files with the columns of PyTorch's benchmark runner first, in its order, then torchduet's columns.

``{compiler}_{suite}_{dtype}_{mode}_{device}_{performance|accuracy}.csv``. A
missing number is an empty cell. ``speedup`` is the ratio of medians, as in
PyTorch's runner; ``speedup_paired``, with an interval, is torchduet's. Times are of one step. All programs
read the files alike: UTF-8, Unix line ends, no text that is a formula.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from harness.declared import COMPILATION
from runner.analysis.columns import KEY, OF_PYTORCH, PARITY, RECORD, SIZE, columns, frame
from runner.analysis.comparison import Comparison, Summary
from runner.labels import file_part, plain
from runner.reports.parts.sections import Section, compilers, sections

FORMATS = ("csv",)
FORMULA_STARTS = ("=", "+", "-", "@")
FROM_TIMES = (
    *("speedup", "abs_latency", "compilation_latency"),
    *("compression_ratio", "eager_peak_mem", "dynamo_peak_mem"),
)
PERFORMANCE = tuple(header for header in OF_PYTORCH if header != "accuracy")
ACCURACY = tuple(header for header in OF_PYTORCH if header not in FROM_TIMES)
OF_ACCURACY = (KEY, SIZE, PARITY, RECORD, COMPILATION)
"""The groups of columns in the files of the accuracy check; the others have all groups."""
RENAMED = {
    "speedup": "speedup_paired",  # PyTorch's header means another number
    "eager_fallbacks": "fallbacks_to_eager",  # PyTorch's name, read by its check_graph_breaks.py
}


def render(summary: Summary) -> Mapping[str, bytes]:
    files: dict[str, bytes] = {}
    for section in sections(summary):
        for compiler in compilers(section):
            comparisons = [c for c in section.comparisons if c.compiler == compiler]
            timed = [c for c in comparisons if c.record.job.protocol.performance]
            checked = [c for c in comparisons if c.record.job.protocol.accuracy]
            if timed:
                files[_file_name(compiler, section, "performance")] = _table(timed, PERFORMANCE)
            if checked:
                files[_file_name(compiler, section, "accuracy")] = _table(checked, ACCURACY, OF_ACCURACY)
    return files


def _file_name(compiler: str, section: Section, testing: str) -> str:
    parts = (compiler, section.suite, section.dtype, section.mode, section.device)
    return "_".join((*map(file_part, parts), testing)) + ".csv"


def _table(comparisons: Sequence[Comparison], headers: Sequence[str], groups: Sequence[str] = ()) -> bytes:
    """One file. ``groups``: those of torchduet's columns; () for all. Floats have six significant digits."""
    first = [OF_PYTORCH[header] for header in headers]
    others = [c for c in columns().values() if c.name not in first and (not groups or c.group in groups)]
    table = frame(comparisons, [*(columns()[name] for name in first), *others])
    texts = {
        name: column.map(safe_text if column.dtype == "string" else lambda flag: str(flag).lower(), "ignore")
        for name, column in table.items()
        if column.dtype in ("string", "boolean")
    }
    header = [*headers, *(RENAMED.get(column.name, column.name) for column in others)]
    file: str = table.assign(**texts).to_csv(
        index=False, header=header, float_format="%.6g", lineterminator="\n"
    )
    return file.encode()


def safe_text(text: str) -> str:
    """One printable line. Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    line = plain(text)
    # some spreadsheets also accept the full-width characters of East Asian keyboards
    start = unicodedata.normalize("NFKC", line.lstrip()[:1])
    return f"'{line}" if start.startswith(FORMULA_STARTS) else line
