"""How much speedups vary between processes, and what one process and ``--processes=auto`` say about them.

    python runner.py --processes=10 -n20 --threads=1 ...        # any run with several processes of each model
    python results/verdicts-cpu/how.py logs/RUN [MORE ...]      # reads such runs

*Models*: eager's step, the standard deviation between the processes of each model, beside what their rounds
explain, and how many intervals of the rounds alone contain the mean over processes. *tau*: the standard
deviation beyond the rounds, as ``benchmarks.tau`` computes it, by the length of eager's step. *Verdicts*: each
process judged alone, then ``auto`` from each process on, with the tau that the records assume, then with
the one that the program assumes today. *Held*: the interval contains the mean of
the model's other processes; for eager, the A/A control, it contains 1. Where ``auto`` used all processes,
there are no others.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from benchmarks.tau import tau_of  # noqa: E402
from harness.schema import Job, Protocol, Record  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.analysis.digits import estimate_text, speedup_text  # noqa: E402
from runner.analysis.results import Estimate, PairedEstimate  # noqa: E402
from runner.analysis.verdicts import Limits, Verdict  # noqa: E402
from runner.analysis.results import ALLOCATOR, SYSTEM  # noqa: E402
from runner.analysis.results import CONTROL  # noqa: E402
from runner.analysis.statistics import Floats, geomean  # noqa: E402
from runner.analysis.verdicts.decision import Z_95, judged, spread_of, verdict  # noqa: E402
from runner.analysis.verdicts.between import assumed_in, assumed_of, is_short  # noqa: E402
from runner.engine.stopping import more_processes  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

OPEN = (Verdict.INCONCLUSIVE, Verdict.UNSTEADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The log ratios of each process's rounds, of a model and candidate. ``tau``: assumed for one process."""

    job: Job
    candidate: str
    parts: tuple[Floats, ...]
    step_s: float
    tau: float

    @property
    def group(self) -> tuple[str, str]:
        return "short" if is_short(self.job, [self.step_s]) else "long", self.candidate

    def estimate(self, numbers: Sequence[int], tau: float) -> PairedEstimate:
        """Of these processes, in this order."""
        return judged(*columns([self.parts[n] for n in numbers]), tau)

    def today(self) -> Processes:
        """With the tau that is assumed today."""
        return replace(self, tau=assumed_in(self.job, self.candidate, [self.step_s]))

    @property
    def alone(self) -> list[PairedEstimate]:
        """Each process by its rounds."""
        return [self.estimate([number], 0.0) for number in range(len(self.parts))]

    def automatic(self, first: int) -> list[int]:
        """The processes that ``auto`` measures, if it begins with this one."""
        order = np.roll(np.arange(len(self.parts)), -first).tolist()
        done = 1
        while done < len(order) and more_processes(
            Protocol(), self.estimate(order[:done], self.tau)
        ):
            done += 1
        return order[:done]


def columns(parts: Sequence[Floats]) -> tuple[Floats, Floats, tuple[int, ...]]:
    whole = np.concatenate(parts)
    return np.exp(whole), np.ones(whole.size), tuple(p.size for p in parts) if len(parts) > 1 else ()


def processes_of(records: Sequence[Record]) -> list[Processes]:
    """Of records that share job and candidate, the processes of all."""
    members: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.samples is not None:
            members.setdefault((record.job.key, record.candidate), []).append(record)
    return [
        Processes(
            job=alike[0].job,
            candidate=candidate,
            parts=tuple(part for record in alike for part in parts_of(record)),
            step_s=statistics.median(time for r in alike if r.samples for time in r.samples.baseline_s),
            tau=assumed_of(alike[0]),
        )
        for (_, candidate), alike in members.items()
    ]


def parts_of(record: Record) -> list[Floats]:
    samples = record.samples
    assert samples is not None
    logs = np.log(np.array(samples.baseline_s) / np.array(samples.candidate_s))
    ends = list(itertools.accumulate(samples.rounds_of_each))
    return np.split(logs, ends[:-1])


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs made with --processes")
    options = parser.parse_args()
    runs = [read_records(folder / "records.jsonl").records for folder in options.runs]
    every = processes_of([record for records in runs for record in records])
    processes = [one for one in every if len(one.parts) > 1]
    print_tables(processes)

    factors = [row for number, records in enumerate(runs, start=1) for row in of_allocator(number, records)]
    if factors:
        print("\n" + tabulate(factors, headers="keys"))


def of_allocator(run: int, records: Sequence[Record]) -> Iterator[Mapping[str, object]]:
    """The factor of malloc as it comes over the heap kept, of each model; then of all, with its own errors."""
    factors: dict[tuple[str, str], list[Estimate]] = {}
    for c in summarize(records).comparisons:
        if ALLOCATOR not in c.own or c.record.system_samples is None:
            continue
        system = c.record.system_samples
        factors.setdefault((c.record.job.case.mode.value, c.compiler), []).append(c.own[ALLOCATOR].estimate)
        yield {
            "run": run,
            "model": c.record.job.case.name,
            "mode": c.record.job.case.mode.value,
            "candidate": c.compiler,
            "heap kept": estimate_text(c.estimate),
            "as it comes": estimate_text(c.own[SYSTEM].estimate),
            "factor [95 %]": estimate_text(c.own[ALLOCATOR].estimate),
            "faults": f"{statistics.median(system.baseline_minor_faults):.0f}, "
            f"{statistics.median(system.candidate_minor_faults):.0f}",
        }
    for (mode, candidate), of_models in factors.items():
        mean = geomean(of_models)
        text = f"{mean.value:.3f} [{mean.these_low:.3f}, {mean.these_high:.3f}]"
        yield {"run": run, "model": "all", "mode": mode, "candidate": candidate, "factor [95 %]": text}


def print_tables(every: Sequence[Processes]) -> None:
    print(tabulate([of_model(one) for one in every], headers="keys", floatfmt=".2f"), end="\n\n")
    groups: dict[tuple[str, str], list[Processes]] = {}
    for one in every:
        groups.setdefault(one.group, []).append(one)
    taus = [of_tau(*key, members) for key, members in sorted(groups.items())]
    print(tabulate(taus, headers="keys", floatfmt=".2f"), end="\n\n")
    verdicts = [row for key, members in sorted(groups.items()) for row in of_verdicts(*key, members)]
    for key, members in sorted(groups.items()):
        if (today := [one.today() for one in members]) != members:
            verdicts.extend(of_verdicts(*key, today))
    print(tabulate(verdicts, headers="keys", floatfmt=".1f"))


def of_model(one: Processes) -> Mapping[str, object]:
    alone = one.alone
    mean = one.estimate(range(len(alone)), 0.0)
    widths = [estimate.rounds_half for estimate in alone if estimate.rounds_half is not None]
    held = sum(estimate.within(mean.factor) for estimate in alone)
    return {
        "model": one.job.case.name,
        "mode": one.job.case.mode.value,
        "candidate": one.candidate,
        "eager, ms": 1e3 * one.step_s,
        "processes": len(alone),
        "speedup [95 %]": f"{mean.factor:.3f} [{mean.low:.3f}, {mean.high:.3f}]",
        "sd between %": 100 * (mean.between_sd or 0.0),
        "sd explained %": 100 * statistics.fmean(widths) / Z_95 if widths else None,
        "rounds alone hold the mean": f"{held}/{len(alone)}",
    }


def of_tau(length: str, candidate: str, members: Sequence[Processes]) -> Mapping[str, object]:
    spreads = [spread for one in members if (spread := spread_of(*columns(one.parts)))]
    tau = tau_of(spreads)
    return {
        "steps": length,
        "candidate": candidate,
        "models": tau.models,
        "processes": tau.processes,
        "tau %": f"{100 * tau.low:.2f} to {100 * tau.high:.2f}",
        "80 % end": 100 * tau.sd,
        "assumed": taus_text(members),
    }


def taus_text(members: Sequence[Processes]) -> str:
    ends = dict.fromkeys((min(one.tau for one in members), max(one.tau for one in members)))
    return " to ".join(f"{100 * tau:.2f}" for tau in ends) + " %"


def of_verdicts(length: str, candidate: str, members: Sequence[Processes]) -> Iterator[Mapping[str, object]]:
    """One process, then ``auto``."""
    for name in ("one", "auto"):
        tally: Counter[str] = Counter()
        for one in members:
            logs = [estimate.log for estimate in one.alone]
            for first in range(len(logs)):
                used = [first] if name == "one" else one.automatic(first)
                others = [log for number, log in enumerate(logs) if number not in used]
                if candidate == CONTROL:
                    others = [0.0]
                estimate = one.estimate(used, one.tau)
                word = verdict(estimate, estimate.p_value, Limits.of(Protocol()))
                kind = "open" if word in OPEN else "same" if word is Verdict.SAME else "called"
                tally.update({"n": 1, kind: 1, "processes": len(used)})
                if others:
                    held = estimate.within(math.exp(statistics.fmean(others)))
                    tally.update({"held": held, "known": 1})
        shares = {f"{kind} %": 100 * tally[kind] / tally["n"] for kind in ("called", "same", "open")}
        mean = tally["processes"] / tally["n"]
        yield {
            "steps": length,
            "candidate": candidate,
            "tau": taus_text(members),
            "processes": name,
            "n": tally["n"],
            "held": f"{tally['held']} of {tally['known']}",
            **shares,
            "mean": mean,
        }


if __name__ == "__main__":
    main()
