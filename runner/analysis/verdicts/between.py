"""The variation of a speedup between processes: what is assumed for one process, and what several show.

Memory layout, code alignment and an autotuner's choices are constant within a process, so the rounds of one
process cannot show how much they matter. The log speedup of a process is ``truth + b``, b from a
distribution with standard deviation tau. This file holds the only table of assumed values of tau; the
processes of a run replace it where there are several. ``benchmarks/tau.py`` makes its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.devices import of
from harness.schema import Job, Record
from runner.analysis.statistics import Numbers, Part
from runner.plan.environments.spec import EAGER, split_candidate

# The standard deviation of the log speedup between processes of one job, by kind of candidate and mode.
# Source: the analysis of variance of results/processes-cpu (10 models, 10 processes each, CPU, one thread).
# In % with 95 % intervals over models, inference and training: eager 0.99 [0.00, 1.61] and 0.00 [0.00, 0.06],
# aot_eager 1.36 [0.69, 1.86] and 0.38 [0.00, 0.59], inductor 1.11 [0.82, 1.35] and 0.59 [0.37, 0.78]. Eager
# in training has the upper end of its split-half interval, 0.25. Other candidates were not measured and have
# the largest value of their mode. Its README has the analysis.
ASSUMED: dict[tuple[str, str], float] = {
    ("eager", "inference"): 0.010,
    ("eager", "training"): 0.0025,
    ("aot_eager", "inference"): 0.014,
    ("aot_eager", "training"): 0.004,
    ("inductor", "inference"): 0.011,
    ("inductor", "training"): 0.006,
    ("other", "inference"): 0.014,
    ("other", "training"): 0.006,
}
SHORT_STEP_S = 0.06
SHORT_STEP_TAU = 0.023
"""The least tau of a compiler where eager's step on a CPU is shorter than ``SHORT_STEP_S``.

In longer steps, intervals with the values of ``ASSUMED`` held on two processors. In short steps they held on
the Xeon of ``ASSUMED`` (309 of 320), but not on an EPYC (81 of 119; with this value 109). Source:
results/verdicts-cpu.
"""
THREADS_TAU = {"aot_eager": 0.006, "inductor": 0.015, "other": 0.015}
"""The least tau of a compiler in training with several threads.

The upper ends of one-sided 80 % intervals, as a calibration has them, of whole models with two threads
(aot_eager 13, inductor 16, at least three processes each). With the values of ``ASSUMED``, 45 of 63 intervals
of inductor held, with these 61. Of eager against itself 23 of 24 hold 1. Measured later on an Intel Xeon, 57
of 59 of inductor hold (its upper end: 1.54 %). Source: results/verdicts-cpu.
"""
ASSUMED_ACROSS = 0.02
"""Of the speedup of one process's step over another process's step (``--envs``): all its sides vary."""
LEAST_ACROSS = 3
"""Processes of each side, below which a verdict across processes is withheld."""

ASSUMED_DF = 1
"""Degrees of freedom of the assumed variance in the variance of all models of a run."""
MOST_PRIOR_DF = 4
"""The largest weight, in degrees of freedom, of that variance in the moderated variance of a model."""
OTHERS_A_PRIOR_DF = 4
"""Degrees of freedom that other models must have measured for each one of that weight, beyond the first."""


def kind_of(candidate: str, *, control: bool = True) -> str:
    """The kind of a candidate in ``ASSUMED``.

    ``control``: eager has its baseline's precision. Any other eager varies like a compiler.
    """
    if candidate.startswith("inductor") or candidate == "aot_inductor":
        return "inductor"
    return candidate if candidate == "aot_eager" or (candidate == "eager" and control) else "other"


def tau_mode(mode: str) -> str:
    """The mode in ``ASSUMED``: generation is inference."""
    return "training" if mode == "training" else "inference"


def assumed_tau(
    candidate: str, mode: str, *, short: bool = False, several_threads: bool = False, control: bool = True
) -> float:
    """tau of a candidate in a mode, if it is not measured. ``short``: as ``is_short`` says.

    ``several_threads``: whether the worker may have more than one thread.
    """
    kind, mode = kind_of(candidate, control=control), tau_mode(mode)
    taus = [ASSUMED[kind, mode]]
    if kind != "eager":
        taus += [SHORT_STEP_TAU] if short else []
        taus += [THREADS_TAU[kind]] if several_threads and mode == "training" else []
    return max(taus)


def assumed_of(record: Record) -> float:
    """tau of the record's candidate: that of the record, or today's where the record is older."""
    known = record.assumed_between_sd
    return assumed_today(record) if known is None else known


def assumed_today(record: Record) -> float:
    """tau that the record's samples would get today, whatever the record has."""
    baseline_s = () if record.samples is None else record.samples.baseline_s
    return assumed_in(record.job, record.candidate, baseline_s)


def assumed_in(job: Job, candidate: str, baseline_s: Numbers) -> float:
    """tau of a candidate of a job over its own baseline, as assumed today. ``baseline_s``: eager's times."""
    compiler = candidate
    if job.environments and candidate in job.candidates:
        compiler, _ = split_candidate(job, candidate)
        if compiler == EAGER:
            return ASSUMED_ACROSS  # its baseline is the reference environment's eager, another process
    return assumed_tau(
        compiler,
        job.case.mode.value,
        short=is_short(job, baseline_s),
        several_threads=job.protocol.threads != 1,
        control=job.baseline_dtype in (None, job.dtype),
    )


def is_short(job: Job, baseline_s: Numbers) -> bool:
    """Whether eager's step on a CPU is short. Without times, it is not."""
    if not len(baseline_s) or of(job.device).accelerated:
        return False
    return float(np.median(baseline_s)) < SHORT_STEP_S


def moderated(spread: float, processes: int, pool: Part) -> Part:
    """The variance of one process's log speedup, from at least two processes.

    ``spread``: the standard deviation of these processes. The variance is (s^2 (P - 1) + d0 s0^2) /
    (P - 1 + d0), with P - 1 + d0 degrees of freedom (the moderated variance of Smyth 2004). s0 and d0 are the
    pool's. A plain s^2 of three processes has two degrees.
    """
    df = processes - 1 + pool.df
    return Part((spread**2 * (processes - 1) + pool.df * pool.variance) / df, df)


def pooled(spreads: Sequence[tuple[float, int]], assumed: float | None) -> Part:
    """The pool: what a run's models say together. ``df``: its weight in the variance of one of them.

    ``spreads``: (standard deviation, number of processes) of each model. ``assumed``: the variance that is
    assumed without a measurement, if any; it counts as ``ASSUMED_DF`` degrees of freedom. In a run of one
    model, the pool is this model and the assumption, so it has that little weight: an assumption that is too
    small would otherwise make the interval too narrow. Every four degrees that the other models measure add
    one, up to ``MOST_PRIOR_DF``. ``benchmarks/calibration.py`` (*processes*) has the coverage.
    """
    measured = sum(count - 1 for _, count in spreads)
    prior_df = 0 if assumed is None else ASSUMED_DF
    total = sum(spread**2 * (count - 1) for spread, count in spreads) + prior_df * (assumed or 0.0)
    others = measured * (1 - 1 / len(spreads)) if spreads else 0.0
    df = min(MOST_PRIOR_DF, prior_df + others / OTHERS_A_PRIOR_DF)
    return Part(total / max(1, measured + prior_df), df)
