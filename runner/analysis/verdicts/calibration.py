"""tau of a machine, from the records of a run with several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy import special
from scipy.optimize import brentq

from harness.schema import Record, Scalar
from runner.analysis.verdicts.between import kind_of, tau_mode
from runner.analysis.verdicts.decision import Spread, spread_of
from runner.analysis.verdicts.family import is_short

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
    """The standard deviation of the log speedup between processes, of a kind of candidate in a mode.

    ``short``: of models with a short step of eager on a CPU. ``sd`` is the value that intervals assume;
    ``low`` and ``high`` are the 95 % interval of the measured one.
    """

    kind: str
    mode: str
    sd: float
    low: float
    high: float
    models: int
    processes: int  # of all models together
    short: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """``conditions``: the facts of ``IDENTITY``. ``date``: UTC, such as 2026-11-23."""

    date: str
    conditions: dict[str, Scalar]
    taus: tuple[Tau, ...]


def conditions_of(facts: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: facts.get(name) for name in IDENTITY}


def calibrated(records: Sequence[Record]) -> tuple[Calibration, ...]:
    """One for each device and number of threads; () without models of several processes in little noise."""
    parts: dict[tuple[Scalar, ...], list[Record]] = {}
    for record in records:
        if record.status.passed:
            parts.setdefault(tuple(conditions_of(record.environment).values()), []).append(record)
    return tuple(calibration for members in parts.values() if (calibration := _of_device(members)).taus)


def _of_device(records: Sequence[Record]) -> Calibration:
    spreads: dict[tuple[str, bool, str], list[Spread]] = {}
    for record in records:
        samples = record.samples
        spread = samples and spread_of(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
        if samples and spread:
            short = is_short(record.job, samples.baseline_s)
            key = (tau_mode(record.job.case.mode.value), short, kind_of(record.candidate))
            spreads.setdefault(key, []).append(spread)
    return Calibration(
        date=max(record.ended for record in records)[:10],
        conditions=conditions_of(records[0].environment),
        taus=tuple(
            tau_of(kind, mode, members, short=short)
            for (mode, short, kind), members in sorted(spreads.items())
            if median(explained for _, _, explained in members) <= NOISIEST**2
        ),
    )


def tau_of(kind: str, mode: str, spreads: Sequence[Spread], *, short: bool = True) -> Tau:
    """tau of the models of a kind, mode and step: their variance between processes beyond their rounds' own.

    Its interval is the Q-profile of Viechtbauer (2007): with the true tau, the sum over models of (P - 1) *
    variance between P processes / (tau^2 + variance that the rounds explain) follows chi squared.
    """
    sds, counts, explained = (np.array(column, dtype=np.float64) for column in zip(*spreads, strict=True))
    squares = (counts - 1) * sds**2
    df = int(np.sum(counts - 1))

    def end(share: float) -> float:
        """The tau at which chi squared exceeds the sum with this probability."""
        expected = float(special.chdtri(df, share))

        def beyond(tau: float) -> float:
            return float(np.sum(squares / np.maximum(tau**2 + explained, TINY))) - expected

        return float(brentq(beyond, 0, LARGEST)) if beyond(0) > 0 else 0.0

    return Tau(
        kind=kind,
        mode=mode,
        short=short,
        sd=end(ONE_SIDED),
        low=end(0.025),
        high=end(0.975),
        models=len(spreads),
        processes=df + len(spreads),
    )
