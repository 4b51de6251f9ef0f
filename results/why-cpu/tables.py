"""The tables of slow models and their causes, from the records of this folder.

``python results/why-cpu/tables.py`` prints them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from harness.backends.settings.candidates import named  # noqa: E402 - the path comes first
from harness.schema import Record  # noqa: E402
from runner.analysis.digits import estimate_text, speedup_text  # noqa: E402
from runner.analysis.verdicts.between import assumed_today  # noqa: E402
from runner.runs.why.asking import LOOK, TOGETHER, explained  # noqa: E402
from runner.runs.why.explain import NoTimes  # noqa: E402
from runner.runs.why.looked import REST, Looked  # noqa: E402
from runner.runs.why.words import Why, overview_text  # noqa: E402
from runner.store.record_file import stored  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

PARTS = {LOOK: LOOK, "pairs": "", TOGETHER: TOGETHER}  # the runs of each folder, by what a record calls them


def why_of(folder: Path) -> Why | None:
    """The explanation that the records of this folder give."""
    looked = Looked.of(_records(folder, LOOK)[0])
    job = replace(looked.record.job, candidates=(named(looked.compiler, looked.settings),))
    records = [
        replace(record, experiment=experiment or record.experiment)
        for part, experiment in PARTS.items()
        for record in _records(folder, part)
    ]
    try:
        return explained(job, records)
    except NoTimes:
        return None


def _records(folder: Path, part: str) -> Sequence[Record]:
    """With the variation between processes that is assumed today, whatever was assumed on its day."""
    file = folder / f"{part}.jsonl"
    records = read_records(file).records if stored(file).exists() else ()
    return [replace(record, assumed_between_sd=assumed_today(record)) for record in records]


def checks(folder: Path, why: Why) -> str:
    """Rounds, compilations beyond the first of the plain candidate, and what the balance does not account for."""
    records = [record for part in PARTS for record in _records(folder, part)]
    steps = [sum(both[side] for both in why.balance.values()) for side in (0, 1)]
    lacks = [f"{abs(rest) / step:.0%}" for rest, step in zip(why.balance[REST], steps, strict=True)]
    return f"| {folder.name} | {why.plain.n} | {len(records) - 1} | {' and '.join(lacks)} |"


def beside_headline(whys: Sequence[Why]) -> Iterator[str]:
    """A row for each whole model: when and with how many threads it ran, and its speedup here and in the headline."""
    with (HERE.parent / "headline-whole-cpu" / "table.csv").open() as file:
        headline = {
            tuple(row[key] for key in ("name", "mode", "dtype", "compiler")): row
            for row in csv.DictReader(file)
        }
    for why in whys:
        record = why.plain.record
        case, dtype = record.job.case, record.job.dtype
        if case.scale == "full":
            row = headline[case.name, case.mode.value, dtype, why.plain.compiler]
            ends = (float(row[key]) for key in ("speedup", "ci_low", "ci_high"))
            verdict = why.plain.verdict.value if why.plain.verdict else ""
            yield (
                f"| {case.name} | {dtype} | {record.started[8:10]} November, {record.started[11:16]} "
                f"| {record.environment['threads']} | {estimate_text(why.plain.estimate)}, {verdict} "
                f"| {speedup_text(*ends)}, {row['verdict']} |"
            )


def explanations() -> dict[Path, Why]:
    """Of each folder of this one, what its records explain."""
    folders = sorted(path.parent for path in HERE.glob("*/look.jsonl*"))
    return {folder: why for folder in folders if (why := why_of(folder)) is not None}


if __name__ == "__main__":
    whys = explanations()
    print(overview_text(list(whys.values())))
    print(
        "\n| model | precision | plain candidate begun (UTC) | threads | `--why` | headline |\n|---|---|---|---|---|---|"
    )
    print("\n".join(beside_headline(list(whys.values()))))
    print(
        "\n| model | rounds | more compilations | not accounted, eager and compiled |\n|---|---|---|---|"
    )
    print("\n".join(checks(folder, why) for folder, why in whys.items()))
