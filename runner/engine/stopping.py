"""Decides when a job has enough rounds. Pure policy: no clock, no process.

Rounds are timed in batches. The parent sleeps during a batch and tests the intervals after it. A
candidate is done when the rounds' own interval is narrow and its verdict is closed; when an open verdict has
been pursued down to half the noise threshold, or no number of rounds of this process can close it; or when
the interval is so far from the threshold that further rounds cannot change the verdict. With several
processes, a process is done when its interval is narrow: the verdict is closed over processes.

Stopping at the first sufficient interval would select intervals that are narrow by chance: in
simulation, the coverage of the 95 % interval fell to 92.7 %. The interval must therefore be sufficient
without the last few rounds, too, and a verdict must still hold with the interval widened around its
estimate (docs/STATISTICS.md, results/calibration).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harness.protocol import ON_A_CPU, Pace
from harness.schema import Protocol
from runner.analysis.results import PairedEstimate
from runner.analysis.statistics import Numbers
from runner.analysis.verdicts import Limits, Verdict
from runner.analysis.verdicts.decision import HALF, Z_95, judged, needed, rounds_can_close, stands, verdict

Columns = tuple[Numbers, Numbers]
"""(baseline seconds, candidate seconds), one value of each per round."""

SMALLEST_BATCH = 5  # rounds; the interval must be sufficient without this many last rounds, too
LARGEST_BATCH = 20
CLEAR = 3.0  # a verdict is clear if it still holds with the interval widened so many times
CLOSED = 1.5  # a closed verdict's margin, because the interval is tested after every batch
WIDEST = 5.0  # times --ci-width: the widest interval with which a clear verdict ends a job

# why measuring ended, as records keep it in ``rounds_ended``; also ``harness.schema.STOPPED``
FIXED_COUNT = "fixed count"
PRECISE = "precise"
CLEAR_VERDICT = "clear verdict"
MOST_ROUNDS = "most rounds"
OUT_OF_TIME = "out of time"
NEEDS_PROCESSES = "needs processes"
PROCESS_SAYS_MORE = "a new process says more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many rounds to run now (0: stop), and why. No round begins after ``within_s`` seconds.

    ``again``: why the rounds so far are to be discarded and measured again; "" if they are kept.
    ``ended``: the candidates that need no further round, and why.
    """

    rounds: int
    reason: str
    within_s: float = ON_A_CPU.batch_s
    again: str = ""
    ended: Mapping[str, str] = field(default_factory=dict)


def decide(
    protocol: Protocol,
    pairs: Mapping[str, Columns],
    elapsed_s: float,
    tau: Mapping[str, float] | None = None,
    *,
    again: bool = False,
    pace: Pace = ON_A_CPU,
    prepared_s: float = 0.0,
) -> Decision:
    """What to do after the rounds in ``pairs``, which took ``elapsed_s`` seconds.

    The candidate with the fewest rounds decides; a batch in which a candidate recompiled does not count
    for that candidate. ``tau``: the assumed variation between processes of each candidate; 0 where it is not
    named. ``again``: whether rounds without a common speedup may be measured again, which takes as long as
    they did. ``pace``: of the job's device. ``prepared_s``: the cost, before its rounds, of a process that
    pursues a verdict: it has as many rounds as are worth their time.
    """
    done = min((len(baseline) for baseline, _ in pairs.values()), default=0)
    if protocol.repeat is not None:
        left = max(0, protocol.repeat - done)
        return Decision(rounds=min(left, LARGEST_BATCH), reason=FIXED_COUNT, within_s=pace.batch_s)
    time_s = protocol.max_measure_s
    left_s = min(pace.batch_s, time_s - elapsed_s)
    obeyed = min(protocol.min_rounds, pace.obeys_from)
    if done < protocol.min_rounds and (done < obeyed or left_s > 0):
        least, within_s = (obeyed, pace.batch_s) if done < obeyed else (protocol.min_rounds, left_s)
        return Decision(rounds=least - done, reason="at least", within_s=within_s)
    if done < protocol.min_rounds or done >= protocol.max_rounds:
        return Decision(rounds=0, reason=MOST_ROUNDS if done >= protocol.max_rounds else OUT_OF_TIME)
    taus = {name: (tau or {}).get(name, 0.0) for name in pairs}
    now = {name: judged(*columns, assumed_sd=taus[name]) for name, columns in pairs.items()}
    ended = {name: _ended(protocol, now[name], pairs[name], taus[name]) for name in pairs}
    worth = math.inf
    if prepared_s:
        worth = max(rounds_worth(estimate, prepared_s, elapsed_s / done) for estimate in now.values())
    if done >= worth:
        ended = {name: reason or PROCESS_SAYS_MORE for name, reason in ended.items()}
    wanting = [now[name] for name, reason in ended.items() if not reason]
    why = ""
    if again and elapsed_s < time_s / 2:
        limits = Limits.of(protocol)
        unsteady = (e for e in now.values() if verdict(e, e.p_value, limits) is Verdict.UNSTEADY)
        why = next((estimate.unsteady for estimate in unsteady), "")
    if why or not wanting:
        reason = next((name for name in ORDER if name in ended.values()), "unsteady")
        return Decision(rounds=0, reason=reason, again=why)
    affordable = _affordable(done, elapsed_s, time_s)
    if affordable < 1:
        return Decision(rounds=0, reason=OUT_OF_TIME)
    wide = any(not _narrow(protocol, estimate) for estimate in wanting)
    aim = protocol.ci_width if wide else _finest(protocol)
    missing = max(_needed(estimate, aim) for estimate in wanting) - done
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, math.ceil(missing / 2)))
    return Decision(
        rounds=min(batch, affordable, protocol.max_rounds - done),
        reason="not yet precise" if wide else "verdict open",
        within_s=left_s,
        ended={name: reason for name, reason in ended.items() if reason},
    )


def rounds_worth(estimate: PairedEstimate, prepared_s: float, round_s: float) -> float:
    """The rounds of a process with which the interval over processes is narrowest for its time.

    sqrt(cost of a process / cost of a round) x sd of a round / tau (Kalibera & Jones 2013).
    """
    if not estimate.assumed_sd or estimate.rounds_half is None or round_s <= 0:
        return math.inf
    sd = estimate.rounds_half / Z_95 * math.sqrt(estimate.n)
    return math.sqrt(prepared_s / round_s) * sd / estimate.assumed_sd


FEWEST_PROCESSES = 3  # of --processes=auto, before an open verdict is closed, or given up as open
MOST_PROCESSES = 10
CLOSED_OVER = 1.5  # as CLOSED, of the interval over processes, which is tested after every process


def more_processes(protocol: Protocol, estimate: PairedEstimate) -> bool:
    """Whether ``--processes=auto`` measures a candidate in one more process, after those of the estimate.

    A verdict that stands with a margin is closed. An open one is pursued while ``MOST_PROCESSES`` would
    probably close it. One process must also stand with twice the assumed tau, and two processes are too few:
    to give a verdict up after one costs coverage where tau is larger than assumed (results/calibration).
    """
    limits, count = Limits.of(protocol), estimate.processes
    careful = replace(estimate, assumed_sd=2 * (estimate.assumed_sd or 0.0)) if count < 2 else estimate
    enough = count == 1 or count >= FEWEST_PROCESSES
    closed = enough and stands(careful, limits, stretch=CLOSED if count < 2 else CLOSED_OVER)
    wanted = count < FEWEST_PROCESSES or left_to_close(protocol, estimate) is not None
    return not closed and count < MOST_PROCESSES and wanted


def left_to_close(protocol: Protocol, estimate: PairedEstimate) -> int | None:
    """The further processes that would probably close the verdict; None: over ``MOST_PROCESSES`` in all."""
    _, processes = needed(estimate, Limits.of(protocol))
    if processes is None or processes > MOST_PROCESSES:
        return None
    return max(1, FEWEST_PROCESSES - estimate.processes, processes - estimate.processes)


ORDER = (NEEDS_PROCESSES, PRECISE, CLEAR_VERDICT, PROCESS_SAYS_MORE)
"""If candidates are done for several reasons, the first is named."""


def _finest(protocol: Protocol) -> float:
    """Rounds are added to an open verdict until their interval is as narrow as this share."""
    return min(protocol.ci_width, HALF * protocol.noise_threshold)


def _ended(protocol: Protocol, now: PairedEstimate, columns: Columns, tau: float) -> str:
    """Why a candidate is done; "" if it is not. It is done if it was without the last few rounds."""
    reason = _reason(protocol, now) if now.n > SMALLEST_BATCH else ""
    if not reason:
        return ""
    baseline, candidate = (column[: now.n - SMALLEST_BATCH] for column in columns)
    return reason if _reason(protocol, judged(baseline, candidate, assumed_sd=tau)) else ""


def _reason(protocol: Protocol, estimate: PairedEstimate) -> str:
    width, limits = estimate.rounds_half, Limits.of(protocol)
    if width is None or width > math.log1p(WIDEST * protocol.ci_width):
        return ""
    if not _narrow(protocol, estimate):
        return CLEAR_VERDICT if stands(estimate, limits, stretch=CLEAR) else ""
    if protocol.processes != 1 or stands(estimate, limits, stretch=CLOSED):
        return PRECISE
    if not rounds_can_close(estimate, limits):
        return NEEDS_PROCESSES
    return PRECISE if width <= math.log1p(_finest(protocol)) else ""


def _narrow(protocol: Protocol, estimate: PairedEstimate) -> bool:
    return estimate.rounds_half is not None and estimate.rounds_half <= math.log1p(protocol.ci_width)


def _needed(estimate: PairedEstimate, aim: float) -> float:
    """Rounds until the rounds' interval is as narrow as ``aim``: its width is as 1 / sqrt(rounds)."""
    if estimate.rounds_half is None or not aim:  # of a threshold of 0
        return estimate.n + LARGEST_BATCH
    return estimate.n * min(1e6, estimate.rounds_half / math.log1p(aim)) ** 2  # a tiny threshold overflows


def _affordable(done: int, elapsed_s: float, budget_s: float) -> int:
    if elapsed_s <= 0 or done == 0:
        return LARGEST_BATCH
    return math.floor((budget_s - elapsed_s) / (elapsed_s / done))
