"""How much a speedup varies between processes, beside what one process's interval promises.

    python results/processes-cpu/how.py results/processes-cpu/*-*

For every model and candidate the first table has the standard deviation between processes, the standard
deviation that the rounds within processes explain, and how many one-process intervals contain the mean of
all. The second table has tau, the standard deviation between processes beyond the rounds' own noise, for each
candidate and mode: an analysis of variance with winsorized rounds, and the covariance of the two halves of
each process's rounds as a check; both intervals are over models.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-22).
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special, stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from harness.schema import Record  # noqa: E402 - nothing is installed
from runner.analysis.statistics import Floats, paired_speedup  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

MODELS: dict[str, int] = {  # with a batch that makes a step take 1 to 40 ms on one core
    "MLP_addition": 2048,
    "NanoGPT_addition": 128,
    "TLTransformer_addition": 64,
    "NanoGPT_shakespeare_64": 8,
    "GPT_150k": 4,
    "lcnet_050": 4,
    "regnety_002": 2,
    "ghostnet_100": 2,
    "DistilBertForMaskedLM": 1,
    "MobileBertForMaskedLM": 1,
}
SUITES = "tiny_gpt,timm_models,huggingface"
FEWEST_TWOS = 4
WINSOR = 3.0  # robust standard deviations; rounds beyond count as that far from their process's median

Key = tuple[str, str, str]
"""(model, mode, candidate)"""
Processes = dict[Key, list[np.ndarray]]
"""The log ratios of each process's rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs made with --processes")
    records = [read_records(run / "records.jsonl").records for run in parser.parse_args().runs]
    print_tables(processes_of([record for part in records for record in part]))


def processes_of(records: Sequence[Record]) -> Processes:
    """Of records that share model, mode and candidate, the processes of all."""
    found: Processes = {}
    for record in records:
        samples = record.samples
        if samples is None:
            continue
        logs = np.log(np.array(samples.baseline_s) / np.array(samples.candidate_s))
        ends = list(itertools.accumulate(samples.rounds_of_each))
        key = record.job.case.name, record.job.case.mode.value, record.candidate
        found.setdefault(key, []).extend(np.split(logs, ends[:-1]))
    return {key: parts for key, parts in found.items() if len(parts) > 1}


def print_tables(found: Mapping[Key, Sequence[np.ndarray]]) -> None:
    rows = [row(key, parts) for key, parts in found.items()]
    headers = (
        *("model", "mode", "candidate", "processes", "speedup [95 %, over processes]", "one process +-%"),
        *("sd between %", "sd explained %", "tau % (ANOVA)", "one-process intervals that hold it"),
    )
    print(tabulate(rows, headers=headers, floatfmt=".2f"))
    held, tried = (sum(int(str(row[-1]).split("/")[part]) for row in rows) for part in (0, 1))
    print(f"one-process intervals that hold the mean over processes: {held} of {tried}\n")
    print(tabulate(list(taus(found)), headers=TAU_HEADERS))


def row(key: Key, parts: Sequence[np.ndarray]) -> tuple[object, ...]:
    alone = [paired_speedup(np.exp(part), np.ones(part.size)) for part in parts]
    centers = np.array([one.log for one in alone])
    center, spread = float(centers.mean()), float(centers.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(parts) - 1)) * spread / math.sqrt(len(parts))
    widths = [one.half_width for one in alone if one.half_width is not None]
    held = sum(one.within(math.exp(center)) for one in alone)
    variance = component(parts).variance
    return (
        *key,
        len(parts),
        f"{math.exp(center):.3f} [{math.exp(center - half):.3f}, {math.exp(center + half):.3f}]",
        100 * statistics.fmean(widths),
        100 * spread,
        100 * statistics.fmean(widths) / float(stats.norm.ppf(0.975)),
        math.copysign(100 * math.sqrt(abs(variance)), variance),
        f"{held}/{len(alone)}",
    )


TAU_HEADERS = ("candidate", "mode", "models", "tau % [95 %]", "split-half tau % [95 %]", "sd of two rounds %")


def taus(found: Mapping[Key, Sequence[np.ndarray]]) -> Iterator[tuple[object, ...]]:
    groups: dict[tuple[str, str], list[Sequence[np.ndarray]]] = {}
    for (_, mode, candidate), parts in found.items():
        groups.setdefault((candidate, mode), []).append(parts)
    for (candidate, mode), members in sorted(groups.items()):
        if len(members) < 2:
            continue
        components = [component(parts) for parts in members]
        tau = tau_of(components)
        yield (
            *(candidate, mode, tau.models),
            f"{100 * tau.value:.2f} [{100 * tau.low:.2f}, {100 * tau.high:.2f}]",
            f"{100 * tau.halves:.2f} [{100 * tau.halves_low:.2f}, {100 * tau.halves_high:.2f}]",
            f"{100 * statistics.fmean(one.within for one in components):.1f}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """tau of one model from an analysis of variance: processes by rounds.

    ``variance``: the estimate of tau^2, below 0 where the processes agree better than their rounds explain.
    ``halves``: the covariance of the means of the first and the second half of the rounds over processes,
    another estimate of tau^2, which dependence of the rounds hardly changes.
    """

    processes: int
    values: float  # of each process: half of its rounds
    variance: float
    within: float  # standard deviation of the mean of two rounds' log ratios
    halves: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tau:
    """tau over models. ``low``, ``high``: the 95 % interval (bootstrap over models); 0 where tau^2 < 0."""

    models: int
    value: float
    low: float
    high: float
    halves: float
    halves_low: float
    halves_high: float


def component(processes: Sequence[Sequence[float] | Floats]) -> Component:
    """The analysis of variance of one model. ``processes``: the log ratios of each process's rounds.

    Log ratios further than ``WINSOR`` robust standard deviations from their process's median are brought to
    that limit: one interrupted sample must not count as a difference between processes. Values are means of
    two rounds, because the orders of rounds are balanced over each two. Raises ``ValueError`` below two
    processes or ten rounds.
    """
    columns = [in_twos(winsorized(np.asarray(one, dtype=np.float64))) for one in processes]
    counts = np.array([column.size for column in columns])
    if len(columns) < 2 or counts.min() < FEWEST_TWOS:
        raise ValueError("variation between processes needs two processes of ten rounds each")
    means = np.array([column.mean() for column in columns])
    inside = sum(float(np.square(c - c.mean()).sum()) for c in columns) / int((counts - 1).sum())
    grand = float((counts * means).sum() / counts.sum())
    between = float((counts * np.square(means - grand)).sum()) / (len(columns) - 1)
    size = float(counts.sum() - np.square(counts).sum() / counts.sum()) / (len(columns) - 1)
    halves = np.array([[c[: c.size // 2].mean(), c[c.size // 2 :].mean()] for c in columns])
    return Component(
        processes=len(columns),
        values=float(counts.mean()),
        variance=(between - inside) / size,
        within=math.sqrt(inside),
        halves=float(np.cov(halves.T)[0, 1]),
    )


def in_twos(column: Floats) -> Floats:
    """The means of two rounds with an order and its reverse.

    The first two rounds are left out: one of them may be a round of the warm-up, with an order of its own.
    """
    whole = column[2 : column.size - column.size % 2]
    means: Floats = whole.reshape(-1, 2).mean(axis=1)
    return means


def winsorized(column: Floats) -> Floats:
    """The column with its outliers at ``WINSOR`` robust standard deviations from the median."""
    middle = float(np.median(column))
    robust = float(np.median(np.abs(column - middle))) / float(special.ndtri(0.75))
    limited: Floats = np.clip(column, middle - WINSOR * robust, middle + WINSOR * robust)
    return limited


def tau_of(models: Sequence[Component], *, draws: int = 4000, seed: int = 0) -> Tau:
    """tau over models: the root of the mean tau^2, each model with equal weight. At least two models."""
    if len(models) < 2:
        raise ValueError("an interval over models needs two models")
    whole = np.array([one.variance for one in models])
    halves = np.array([one.halves for one in models])
    chosen = np.random.default_rng(seed).integers(0, len(models), (draws, len(models)))
    low, high = np.quantile(whole[chosen].mean(axis=1), [0.025, 0.975])
    halves_low, halves_high = np.quantile(halves[chosen].mean(axis=1), [0.025, 0.975])
    return Tau(
        models=len(models),
        value=_root(float(whole.mean())),
        low=_root(float(low)),
        high=_root(float(high)),
        halves=_root(float(halves.mean())),
        halves_low=_root(float(halves_low)),
        halves_high=_root(float(halves_high)),
    )


def _root(variance: float) -> float:
    return math.sqrt(max(0.0, variance))


if __name__ == "__main__":
    main()
