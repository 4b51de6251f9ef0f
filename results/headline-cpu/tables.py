"""The tables of docs/RESULTS.md, from the runs of ``make headline``.

    python results/headline-cpu/tables.py results/headline-cpu

Reads a run or folders of runs. Kept beside the results that it made. No check covers it: it may need the
program of its day (2026-11-23).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from scipy.stats import gmean
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from harness.schema import Record  # noqa: E402 - nothing is installed
from runner.analysis.columns import columns, frame  # noqa: E402
from runner.analysis.comparison import Comparison, GroupSummary  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.analysis.digits import break_even_text, significant, speedup_text, steps_text  # noqa: E402
from runner.analysis.estimate import Verdict  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

ENDS = 10  # models at each end of the list of speedups
FAILURE = ("name", "mode", "compiler", "status", "why")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--compiler", default="inductor", help="the compiler of the lists")
    options = parser.parse_args()
    print_tables(options.runs, options.compiler)


def print_tables(runs: Sequence[Path], compiler: str) -> None:
    """Averages and costs of each suite, the ``ENDS`` of the models by speedup, and what did not pass."""
    found = unique(record for run in runs for record in records_below(run))
    records = sorted(found, key=lambda record: (record.job.case.mode.value, record.job.case.suite))
    summary = summarize(records)
    data = frame(summary.comparisons, columns().values())
    data = data.assign(where=[c.device for c in summary.comparisons], comparison=summary.comparisons)
    passed = data[data["passed"]]
    print(f"{data['job'].nunique()} jobs, {len(data)} comparisons\n")
    show([averages(group, of_group(group, passed)) for group in summary.groups])
    show([costs(group, of_group(group, data)) for group in summary.groups])
    timed = passed[passed["compiler"] == compiler].dropna(subset="speedup")
    attribution = data[data["compiler"] == "aot_eager"].set_index("job")["comparison"]
    for ascending in (False, True):
        ends = timed.sort_values("speedup", ascending=ascending, kind="stable").head(ENDS)
        show([extreme(c, attribution.get(c.record.job.key)) for c in ends["comparison"]])
    failed = data[~data["passed"]]
    show(failed.assign(why=[why(c.record) for c in failed["comparison"]])[[*FAILURE]].to_dict("records"))


def records_below(folder: Path) -> Iterator[Record]:
    """Of a run, or of all runs in the folder."""
    for file in sorted([*folder.glob("records.jsonl")] or folder.glob("*/records.jsonl")):
        yield from read_records(file).records


def unique(records: Iterable[Record]) -> Iterator[Record]:
    """The first record of each job and candidate: runs may be parts of one plan."""
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        first.setdefault((record.job.key, record.candidate), record)
    yield from first.values()


def show(rows: Sequence[Mapping[str, object]]) -> None:
    print(tabulate(rows, headers="keys", tablefmt="pipe", disable_numparse=True), end="\n\n")


def of_group(group: GroupSummary, data: pd.DataFrame) -> pd.DataFrame:
    key = {"compiler": group.compiler, "suite": group.suite, "mode": group.mode, "where": group.device}
    return data[(data[[*key]] == pd.Series(key)).all(axis=1)]


def averages(group: GroupSummary, passed: pd.DataFrame) -> dict[str, str]:
    speedups = passed["speedup"].dropna()
    spread = speedups.quantile([0.1, 0.5, 0.9])
    decided = [group.verdicts.get(v.value, 0) for v in (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER)]
    return {
        **label_of(group),
        "pass [95 %]": f"{group.passed}/{group.total} "
        f"[{percent(group.pass_low)}, {percent(group.pass_high)}]",
        "speedup, geometric mean [models like these] (these models)": mean_text(group),
        **(
            {
                "with malloc as the system has it": speedup_text(system.value, system.low, system.high),
                "the allocator's factor (these models)": speedup_text(
                    group.allocator.value, group.allocator.these_low, group.allocator.these_high
                ),
            }
            if (system := group.system).models
            else {}
        ),
        "10 / 50 / 90 % of models": " / ".join(f"{q:.2f}" for q in spread) if len(speedups) > 1 else "-",
        "faster / same / slower / open": " / ".join(
            map(str, (*decided, sum(group.verdicts.values()) - sum(decided)))
        ),
    }


def label_of(group: GroupSummary) -> dict[str, str]:
    """With the processor, where the runs have several."""
    where = ", ".join(filter(None, (group.suite, group.mode, processor(group.device))))
    return {"suite, mode": where, "compiler": group.compiler}


def processor(device: str) -> str:
    """``Intel Xeon`` of ``cpu (Intel(R) Xeon(R) Processor)``; empty if all runs have the same."""
    name = device.partition(" (")[2].removesuffix(")")
    return name.replace("(R)", "").removesuffix(" Processor")


def mean_text(group: GroupSummary) -> str:
    if group.mean.value is None:
        return "-"
    text = f"{group.mean.value:.2f}x"
    if group.mean.low is not None and group.mean.models > 2:  # over two models it is from 0 to thousands
        text += f" [{group.mean.low:.2f}, {group.mean.high:.2f}]"
    if group.mean.these_low is not None:
        text += f" ({group.mean.these_low:.3f}, {group.mean.these_high:.3f})"
    return f"{text}, n {group.mean.models}"


def costs(group: GroupSummary, members: pd.DataFrame) -> dict[str, str]:
    passed = members[members["passed"]]
    compiling, memory, resolution, largest = (
        passed[name].dropna()
        for name in ("compilation_latency_s", "memory_ratio", "resolution_median", "resolution_largest")
    )
    even = group.break_even
    return {
        **label_of(group),
        "compilation s, median (largest)": f"{compiling.median():.0f} ({compiling.max():.0f})"
        if len(compiling)
        else "-",
        "pays after steps, median of all": "-" if even.median is None else steps_text(even.median),
        "pays; median of these": f"{even.pays} of {even.models}; {steps_text(even.median_of_paying)}"
        if even.median_of_paying is not None
        else f"{even.pays} of {even.models}",
        "memory, eager / compiled, geometric mean": f"{gmean(memory):.2f}x" if len(memory) else "-",
        "with graph breaks": f"{(members['graph_breaks'].fillna(0) > 0).sum()} of {len(members)}",
        "parity resolution, median (largest)": f"{percent(resolution.median(), 2)} "
        f"({percent(largest.max(), 1)})"
        if len(resolution)
        else "-",
    }


def extreme(c: Comparison, attribution: Comparison | None) -> dict[str, str]:
    latency, even = c.compilation_latency_s, c.break_even
    return {
        "model": c.record.job.case.name,
        "mode": ", ".join(filter(None, (c.record.job.case.mode.value, processor(c.device)))),
        c.compiler: f"{interval(c)} {c.verdict.value if c.verdict else ''}",
        "aot_eager": interval(attribution),
        "eager ms": significant(c.baseline_ms or 0.0, 3),
        "compilation s": "-" if latency is None else f"{latency:.0f}",
        "pays after": "-"
        if even is None
        else break_even_text(even),
    }


def interval(comparison: Comparison | None) -> str:
    if comparison is None or comparison.speedup is None:
        return "-"
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


def why(record: Record) -> str:
    parity = record.parity
    if record.failure is not None:
        return record.failure.message.strip().splitlines()[0][:160]
    if parity is not None and parity.worst is not None and not parity.unjudged:
        return f"{parity.worst.name}: {parity.worst.failure}, of {parity.failed} of {parity.tensors} tensors"
    return (parity and parity.unjudged) or ""


def percent(share: float | None, digits: int = 0) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f} %"


if __name__ == "__main__":
    main()
