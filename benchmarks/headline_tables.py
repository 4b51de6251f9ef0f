"""The tables of docs/RESULTS.md, from the runs of ``benchmarks/headline.py``.

    python benchmarks/headline_tables.py results/headline-cpu           # a folder of runs, or runs

The folders may be parts of one plan. Records of the same job and candidate count once.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser, records_of  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402
from runner.analysis.comparison import Comparison, GroupSummary  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.analysis.digits import significant, speedup_text, steps_text  # noqa: E402
from runner.analysis.estimate import Verdict  # noqa: E402

ENDS = 10  # models at each end of the list of speedups
Rows = Sequence[Sequence[str]]


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--compiler", default="inductor", help="the compiler of the lists")
    options = parser.parse_args()
    found = unique(record for run in options.runs for record in records_below(run))
    records = sorted(found, key=lambda record: (record.job.case.mode.value, record.job.case.suite))
    summary = summarize(records)
    rows = [c for c in summary.comparisons if c.compiler == options.compiler]
    attribution = {name_of(c): c for c in summary.comparisons if c.compiler == "aot_eager"}
    jobs = {record.job.key for record in records}
    print(f"{len(jobs)} jobs, {len(records)} comparisons\n")
    show(
        (
            "suite, mode",
            "compiler",
            "pass [95 %]",
            "speedup, geometric mean [models like these] (these models)",
            "10 / 50 / 90 % of models",
            "faster / same / slower / open",
        ),
        averages(summary.groups, summary.comparisons),
    )
    show(
        (
            "suite, mode",
            "compiler",
            "compilation s, median (largest)",
            "pays after steps, median",
            "memory, eager / compiled, geometric mean",
            "with graph breaks",
            "parity resolution, median (largest)",
        ),
        costs(summary.groups, summary.comparisons),
    )
    timed = sorted((c for c in rows if c.record.status.passed and c.speedup), key=lambda c: -(c.speedup or 0))
    header = ("model", "mode", options.compiler, "aot_eager", "eager ms", "compilation s", "pays after")
    show(header, extremes(timed[:ENDS], attribution))
    show(header, extremes(timed[::-1][:ENDS], attribution))
    show(("model", "mode", "compiler", "status", "why"), failures(summary.comparisons))


def records_below(folder: Path) -> Iterator[Record]:
    """Of a run, or of all runs in the folder."""
    if (folder / "records.jsonl").exists():
        yield from records_of(folder)
        return
    for one in sorted(folder.glob("*/records.jsonl")):
        yield from records_of(one.parent)


def unique(records: Iterable[Record]) -> Iterator[Record]:
    seen = set()
    for record in records:
        key = (record.job.key, record.candidate)
        if key not in seen:
            seen.add(key)
            yield record


def show(header: Sequence[str], rows: Rows) -> None:
    print(tabulate(rows, headers=header, tablefmt="pipe", disable_numparse=True), end="\n\n")


def averages(groups: Sequence[GroupSummary], comparisons: Sequence[Comparison]) -> Rows:
    rows = []
    for group in groups:
        members = [c for c in of_group(group, comparisons) if c.record.status.passed and c.speedup]
        speedups = [c.speedup for c in members if c.speedup is not None]
        counts = Counter(group.verdicts)
        decided = [counts[v.value] for v in (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER)]
        spread = "-"
        if len(speedups) > 1:
            spread = " / ".join(f"{q:.2f}" for q in np.quantile(speedups, (0.1, 0.5, 0.9)))
        rows.append((
            label_of(group),
            group.compiler,
            f"{group.passed}/{group.total} [{percent(group.pass_low)}, {percent(group.pass_high)}]",
            mean_text(group),
            spread,
            " / ".join(map(str, (*decided, sum(counts.values()) - sum(decided)))),
        ))  # fmt: skip
    return rows


def mean_text(group: GroupSummary) -> str:
    if group.geomean_speedup is None:
        return "-"
    text = f"{group.geomean_speedup:.2f}x"
    known = group.geomean_low is not None and group.geomean_high is not None
    if known and group.averaged > 2:  # the interval over two models is from 0 to thousands
        text += f" [{group.geomean_low:.2f}, {group.geomean_high:.2f}]"
    if group.these_low is not None and group.these_high is not None:
        text += f" ({group.these_low:.3f}, {group.these_high:.3f})"
    return f"{text}, n {group.averaged}"


def costs(groups: Sequence[GroupSummary], comparisons: Sequence[Comparison]) -> Rows:
    rows = []
    for group in groups:
        members = of_group(group, comparisons)
        passed = [c for c in members if c.record.status.passed]
        compiling = present(passed, lambda c: c.compilation_latency_s)
        pays = present(passed, lambda c: c.break_even_steps)
        memory = present(passed, lambda c: c.memory_ratio)
        checks = [c.record.parity for c in passed if c.record.parity and c.record.parity.resolution_median]
        rows.append((
            label_of(group),
            group.compiler,
            f"{statistics.median(compiling):.0f} ({max(compiling):.0f})" if compiling else "-",
            steps_text(statistics.median(pays)) if pays else "-",
            f"{math.exp(statistics.fmean(map(math.log, memory))):.2f}x" if memory else "-",
            f"{sum((c.number('graph_breaks') or 0) > 0 for c in members)} of {len(members)}",
            f"{percent(statistics.median(p.resolution_median or 0 for p in checks), 2)} "
            f"({percent(max(p.resolution_largest or 0 for p in checks), 1)})" if checks else "-",
        ))  # fmt: skip
    return rows


def label_of(group: GroupSummary) -> str:
    """With the processor, where the runs have several."""
    return ", ".join(filter(None, (group.suite, group.mode, processor(group.device))))


def processor(device: str) -> str:
    """``Intel Xeon`` of ``cpu (Intel(R) Xeon(R) Processor)``; empty if all runs have the same."""
    name = device.partition(" (")[2].removesuffix(")")
    return name.replace("(R)", "").removesuffix(" Processor")


def of_group(group: GroupSummary, comparisons: Sequence[Comparison]) -> list[Comparison]:
    key = (group.compiler, group.suite, group.mode, group.device)
    return [
        c
        for c in comparisons
        if (c.compiler, c.record.job.case.suite, c.record.job.case.mode.value, c.device) == key
    ]


def present(comparisons: Iterable[Comparison], number: Callable[[Comparison], float | None]) -> list[float]:
    return [value for c in comparisons if (value := number(c)) is not None]


def extremes(comparisons: Iterable[Comparison], attribution: Mapping[str, Comparison]) -> Rows:
    return [
        (
            c.record.job.case.name,
            ", ".join(filter(None, (c.record.job.case.mode.value, processor(c.device)))),
            f"{interval(c)} {c.verdict.value if c.verdict else ''}",
            interval(attribution.get(name_of(c))),
            significant(c.baseline_ms or 0.0, 3),
            f"{c.compilation_latency_s:.0f}" if c.compilation_latency_s is not None else "-",
            steps_text(c.break_even_steps) if c.break_even_steps is not None else "-",
        )
        for c in comparisons
    ]


def failures(comparisons: Iterable[Comparison]) -> Rows:
    return [
        (
            c.record.job.case.name,
            c.record.job.case.mode.value,
            c.compiler,
            c.record.status.value,
            why(c.record),
        )
        for c in comparisons
        if not c.record.status.passed
    ]


def why(record: Record) -> str:
    if record.failure is not None:
        return record.failure.message.strip().splitlines()[0][:160]
    parity = record.parity
    if parity is not None and parity.unjudged:
        return parity.unjudged
    if parity is not None and parity.worst is not None:
        return f"{parity.worst.name}: {parity.worst.failure}, of {parity.failed} of {parity.tensors} tensors"
    return ""


def name_of(comparison: Comparison) -> str:
    return comparison.record.job.key


def interval(comparison: Comparison | None) -> str:
    if comparison is None or comparison.speedup is None:
        return "-"
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


def percent(share: float | None, digits: int = 0) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f} %"


if __name__ == "__main__":
    main()
