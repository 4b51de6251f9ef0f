"""Eager against itself as it was measured, by today's rule: the table of docs/STATISTICS.md.

    python results/calibration/replay.py                                  # all stored sequences
    python results/calibration/replay.py results/aa-control results/aa-precision ...

Nothing is stopped, everything is judged as one process. ``docs/numbers.py`` takes the counts of two pages from
``rows``. Kept beside the results of the simulation.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.calibration import PROTOCOL, Floats  # noqa: E402 - nothing is installed
from harness.codec import from_json  # noqa: E402
from harness.schema import Record  # noqa: E402
from runner.analysis.results import PairedEstimate  # noqa: E402
from runner.analysis.verdicts import Limits, Verdict  # noqa: E402
from runner.analysis.verdicts.decision import judged, verdict  # noqa: E402
from runner.analysis.verdicts.between import assumed_today  # noqa: E402
from runner.store.record_file import opened  # noqa: E402


def sequences(folder: Path) -> Iterator[tuple[float, Floats]]:
    """The assumed tau and d of every process of every control that was stored; some files have a job many times."""
    for file in sorted(folder.rglob("*.jsonl*")):
        with opened(file) as stored:
            texts = stored.readlines()
        for text in texts:
            try:
                record = from_json(Record, json.loads(text))
            except ValueError:  # a study's own rows
                continue
            samples = record.samples
            if record.candidate != "eager" or record.job.baseline_dtype or samples is None:
                continue
            logs = np.log(np.array(samples.baseline_s) / np.array(samples.candidate_s))
            ends = np.cumsum(samples.rounds_of_each)[:-1]
            tau = assumed_today(record)
            yield from ((tau, part) for part in np.split(logs, ends))


def rows(folders: Sequence[Path]) -> list[tuple[object, ...]]:
    """Of each folder, and of all: name, sequences, how many intervals hold 1, how many are called, ..."""
    estimates = {
        folder.name: [
            judged(np.exp(d), np.ones(d.size), assumed_sd=tau)
            for tau, d in sequences(folder)
            if d.size >= 10
        ]
        for folder in folders
    }
    estimates["all"] = [one for members in estimates.values() for one in members]
    return [replayed(name, members) for name, members in estimates.items() if members]


def replayed(name: str, estimates: Sequence[PairedEstimate]) -> tuple[object, ...]:
    verdicts = Counter(verdict(e, e.p_value, Limits.of(PROTOCOL)) for e in estimates)
    held = sum(e.within(1) for e in estimates)
    called = verdicts[Verdict.FASTER] + verdicts[Verdict.SLOWER]
    wider = sum(e.widened > 1 for e in estimates)
    return (name, len(estimates), held, called, verdicts[Verdict.SAME], verdicts[Verdict.UNSTEADY], wider)


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:]] or sorted((ROOT / "results").iterdir())
    headers = ("run", "sequences", "interval holds 1", "faster or slower", "same", "unsteady", "widened")
    print("\nstored A/A sequences\n")
    print(tabulate(rows(folders), headers=headers))
