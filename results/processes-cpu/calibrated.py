"""What --calibrate would have changed for these models, and what --processes=auto would have closed.

    python results/processes-cpu/calibrated.py > results/processes-cpu/calibrated.txt

Twenty times, five of the ten models, four processes each, are the calibration. The other five are
judged, once for each process: whether the interval holds the mean of the model's nine other processes, and which
verdict p gives. Then --processes=auto takes their processes in two random orders, with the calibrated tau.

Kept beside the results that it read. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from runner.store.record_file import read_records  # noqa: E402 - as a script
from how import processes_of  # noqa: E402
from harness.schema import Protocol  # noqa: E402
from runner.analysis.estimate import Limits, PairedEstimate, Verdict  # noqa: E402
from runner.analysis.statistics import Floats  # noqa: E402
from runner.analysis.verdicts.between import assumed_tau  # noqa: E402
from runner.analysis.verdicts.calibration import tau_of  # noqa: E402
from runner.analysis.verdicts.decision import Between, judged, spread_of, verdict  # noqa: E402
from runner.engine.stopping import more_processes  # noqa: E402

REPETITIONS, MODELS, PROCESSES, ORDERS = 20, 5, 4, 2
OPEN = (Verdict.INCONCLUSIVE, Verdict.UNSTEADY)
Parts = Sequence[Floats]  # the log ratios of each process's rounds
rng = np.random.default_rng(36)


def main() -> None:
    records = [record for folder in sorted(HERE.glob("*-[0-9]")) for record in read_records(folder / "records.jsonl").records]
    jobs: dict[tuple[str, str], dict[str, Parts]] = {}
    for (model, mode, candidate), parts in processes_of(records).items():
        jobs.setdefault((mode, candidate), {})[model] = [np.asarray(part) for part in parts]
    rows = [row for key, models in sorted(jobs.items()) for row in rows_of(*key, models)]
    headers = (
        "mode",
        "candidate",
        "tau from",
        "tau, %",
        "held, %",
        "called, %",
        "same, %",
        "open, %",
        "processes",
    )
    print(tabulate(rows, headers=headers, floatfmt=("", "", "", ".2f", ".0f", ".0f", ".0f", ".0f", ".1f")))


def rows_of(mode: str, candidate: str, models: dict[str, Parts]) -> Iterator[tuple[object, ...]]:
    tallies = {name: Counter[str]() for name in ("shipped", "calibrated", "auto, calibrated")}
    taus: list[float] = []
    shipped = assumed_tau(candidate, mode).sd
    for _ in range(REPETITIONS):
        names = rng.permutation(sorted(models))
        spreads = [
            spread_of(*columns(parts), counts(parts)) for parts in map(some, map(models.get, names[:MODELS]))
        ]
        tau = tau_of(candidate, mode, [one for one in spreads if one]).sd
        taus.append(tau)
        for parts in map(models.__getitem__, names[MODELS:]):
            alone = [estimate([part], 0.0).log for part in parts]
            for place, part in enumerate(parts):
                others = float(np.mean(np.delete(alone, place)))
                for name, sd in (("shipped", shipped), ("calibrated", tau)):
                    count(tallies[name], estimate([part], sd), others)
            for _ in range(ORDERS):
                done = automatic([parts[place] for place in rng.permutation(len(parts))], tau)
                count(tallies["auto, calibrated"], estimate(done, tau), float(np.mean(alone)), len(done))
    for name, tally in tallies.items():
        sd = shipped if name == "shipped" else float(np.median(taus))
        shares = (100 * tally[what] / tally["n"] for what in ("held", "called", "same", "open"))
        yield mode, candidate, name, 100 * sd, *shares, tally["processes"] / tally["n"]


def automatic(parts: Parts, tau: float) -> Parts:
    done = 1
    while done < len(parts) and more_processes(Protocol(), estimate(parts[:done], tau), calibrated=True):
        done += 1
    return parts[:done]


def some(parts: Parts | None) -> Parts:
    assert parts is not None
    return [parts[place] for place in rng.choice(len(parts), PROCESSES, replace=False)]


def estimate(parts: Parts, tau: float) -> PairedEstimate:
    return judged(*columns(parts), counts(parts), Between(assumed_sd=tau))


def columns(parts: Parts) -> tuple[Floats, Floats]:
    whole = np.concatenate(parts)
    return np.exp(whole), np.ones(whole.size)


def counts(parts: Parts) -> tuple[int, ...]:
    return tuple(part.size for part in parts) if len(parts) > 1 else ()


def count(tally: Counter[str], found: PairedEstimate, truth: float, processes: int = 1) -> None:
    word = verdict(found, found.p_value, Limits.of(Protocol()))
    kind = "open" if word in OPEN else "same" if word is Verdict.SAME else "called"
    tally.update(
        {
            "n": 1,
            "processes": processes,
            kind: 1,
            "held": found.interval is not None and found.within(np.exp(truth)),
        }
    )


if __name__ == "__main__":
    main()
