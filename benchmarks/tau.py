"""Rows for the table of tau in ``runner/analysis/verdicts/between.py``, from runs with several processes.

python -m benchmarks.tau results/gpu-h200
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy import special
from scipy.optimize import brentq

from harness.schema import Record, Scalar
from runner.analysis.verdicts.between import is_short, kind_of, tau_mode
from runner.analysis.verdicts.decision import Spread, spread_of
from runner.store.run_folder import RECORDS, read_run

ONE_SIDED = 0.8
"""The confidence of the upper end of tau that intervals assume. With the best estimate itself, simulated
coverage is 90 to 92 % where models differ in tau; with this end, 94 to 98 %."""
NOISIEST = 0.01
"""The largest standard deviation of a process's log speedup that the rounds may explain, in the median model.
In more noise, tau would be found as 0 or as several percent by chance."""
TINY = 1e-18  # of a variance
LARGEST = 10.0  # of tau
IDENTITY = ("cpu", "device_name", "torch", "threads", "allocator")
"""The facts of a worker under which a tau holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tau:
    """The standard deviation of the log speedup between processes. ``sd`` is the value that intervals assume;
    ``low`` and ``high`` are the 95 % interval of the measured one. ``processes``: of all models together.
    """

    sd: float
    low: float
    high: float
    models: int
    processes: int


Kind = tuple[str, bool, str]
"""Mode, whether eager's step on a CPU is short, kind of candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """``conditions``: the facts of ``IDENTITY``. ``date``: UTC, such as 2026-11-23."""

    date: str
    conditions: Mapping[str, Scalar]
    taus: Mapping[Kind, Tau]


def calibrated(records: Sequence[Record]) -> tuple[Calibration, ...]:
    """One for each device and number of threads; () without models of several processes in little noise."""
    parts: dict[tuple[Scalar, ...], list[Record]] = {}
    for record in records:
        if record.status.passed:
            parts.setdefault(tuple(map(record.environment.get, IDENTITY)), []).append(record)
    return tuple(
        Calibration(
            date=max(record.ended for record in members)[:10],
            conditions=dict(zip(IDENTITY, facts, strict=True)),
            taus=taus,
        )
        for facts, members in parts.items()
        if (taus := _taus(members))
    )


def _taus(records: Sequence[Record]) -> dict[Kind, Tau]:
    spreads: dict[Kind, list[Spread]] = {}
    for record in records:
        samples = record.samples
        spread = samples and spread_of(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
        if samples and spread:
            short = is_short(record.job, samples.baseline_s)
            kind = tau_mode(record.job.case.mode.value), short, kind_of(record.candidate)
            spreads.setdefault(kind, []).append(spread)
    return {
        kind: tau_of(members)
        for kind, members in sorted(spreads.items())
        if median(explained for _, _, explained in members) <= NOISIEST**2
    }


def tau_of(spreads: Sequence[Spread]) -> Tau:
    """tau of the models of a kind: their variance between processes beyond their rounds' own.

    Its interval is the Q-profile of Viechtbauer (2007): with the true tau, the sum over models of (P - 1) *
    variance between P processes / (tau^2 + variance that the rounds explain) follows chi squared.
    """
    sds, counts, explained = (np.array(column, dtype=np.float64) for column in zip(*spreads, strict=True))
    squares, df = (counts - 1) * sds**2, int(np.sum(counts - 1))

    def end(share: float) -> float:
        """The tau at which chi squared exceeds the sum with this probability."""
        expected = float(special.chdtri(df, share))

        def beyond(tau: float) -> float:
            return float(np.sum(squares / np.maximum(tau**2 + explained, TINY))) - expected

        return float(brentq(beyond, 0, LARGEST)) if beyond(0) > 0 else 0.0

    models = len(spreads)
    return Tau(sd=end(ONE_SIDED), low=end(0.025), high=end(0.975), models=models, processes=df + models)


def rows(folders: Sequence[Path]) -> list[str]:
    """A line for each machine, and one for each kind of candidate and mode on it."""
    lines = []
    records = [record for folder in folders for record in read_run(folder / RECORDS).records]
    for calibration in calibrated(records):
        lines += [f"# {calibration.date}: {calibration.conditions}"]
        lines += [
            f'("{kind}", "{mode}"): {tau.sd:.4f},  # [{tau.low:.4f}, {tau.high:.4f}], '
            f"{tau.models} results, {tau.processes} processes{', short steps' if short else ''}"
            for (mode, short, kind), tau in calibration.taus.items()
        ]
    return lines or ["# no result of several processes whose rounds explain less than 1 %"]


if __name__ == "__main__":
    print("\n".join(rows([Path(name) for name in sys.argv[1:]])))
