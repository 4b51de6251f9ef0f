"""tau of a machine, from the records of a run with several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from harness.schema import Record
from runner.analysis.verdicts.between import kind_of, tau_mode
from runner.analysis.verdicts.decision import spread_of
from runner.store.calibrations import Calibration, Tau, conditions_of

ONE_SIDED = 0.8
"""The confidence of the upper end of tau that intervals assume. With the best estimate itself, simulated
coverage is 90 to 92 % where models differ in tau; with this end, 94 to 98 %."""

Spread = tuple[float, int, float]
"""Of one model and candidate: as ``decision.spread_of`` gives it."""


def calibrated(records: Sequence[Record]) -> tuple[Calibration, ...]:
    """One calibration for each device of the run; () if no candidate has two processes."""
    parts: dict[str, list[Record]] = {}
    for record in records:
        if record.status.passed:
            parts.setdefault(record.job.device, []).append(record)
    return tuple(one for members in parts.values() if (one := _of_device(members)).taus)


def _of_device(records: Sequence[Record]) -> Calibration:
    spreads: dict[tuple[str, str], list[Spread]] = {}
    for record in records:
        samples = record.samples
        spread = samples and spread_of(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
        if spread:
            key = (tau_mode(record.job.case.mode.value), kind_of(record.candidate))
            spreads.setdefault(key, []).append(spread)
    return Calibration(
        date=max(record.ended for record in records)[:10],
        conditions=conditions_of(records[0].environment),
        taus=tuple(tau_of(kind, mode, members) for (mode, kind), members in sorted(spreads.items())),
    )


def tau_of(kind: str, mode: str, spreads: Sequence[Spread]) -> Tau:
    """tau of the models of a kind and mode: their variance between processes beyond that of their rounds.

    With df degrees of freedom, df * variance / its truth follows chi squared. Its ends, less the variance
    that the rounds explain, are those of tau^2.
    """
    counts = np.array([count - 1 for _, count, _ in spreads])
    df = int(counts.sum())
    variance, explained = (
        float(np.average([one[place] ** power for one in spreads], weights=counts))
        for place, power in ((0, 2), (2, 1))
    )

    def end(share: float) -> float:
        return math.sqrt(max(0.0, variance * df / float(special.chdtri(df, share)) - explained))

    return Tau(
        kind=kind,
        mode=mode,
        sd=end(ONE_SIDED),
        low=end(0.025),
        high=end(0.975),
        models=len(spreads),
        processes=df + len(spreads),
    )
