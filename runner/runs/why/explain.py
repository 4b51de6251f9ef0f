"""From records to the explanation of one candidate: which causes were tested, and what removing them gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from harness.backends.settings.candidates import named, parts_of
from harness.schema import Record, Samples
from runner.analysis.derive import summarize
from runner.analysis.ratios import FEWEST, rounds_of
from runner.analysis.results import PAIRS, Ratio, Result, exp
from runner.analysis.statistics import Floats, pairs
from runner.analysis.verdicts import Verdict
from runner.names import job_title
from runner.runs.why.causes import Proposal
from runner.runs.why.looked import Kernel, Looked

STAGES = ("dynamo_eager", "aot_eager")
CAPTURE = "capture"
RESAMPLES = 1000
LEAST = 0.01  # of the step: what is seen to take less cannot be the loss, whatever its setting gains
MANY_FAULTS = 100  # page faults of a step, beyond eager's
CHECKS = (
    ("recompiles", "recompilations"),
    ("graph_breaks", "graph breaks"),
    ("eager_fallbacks", "functions left to eager"),
)


class NoTimes(ValueError):
    """The candidate has no times. The message is a sentence."""


class Ends(NamedTuple):
    """A number, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate with a setting: its pairs with the plain candidate and with eager."""

    setting: str
    over_plain: Ratio | None  # None: it did not pass, or shares too few rounds
    comparison: Result

    @property
    def gain(self) -> float:
        """The speedup over the plain candidate; 0 if it is not known."""
        known = self.over_plain and self.over_plain.estimate
        return known.factor if known else 0.0

    @property
    def helps(self) -> bool:
        return self.over_plain is not None and self.over_plain.verdict is Verdict.FASTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A proposed cause after the test. ``share``: of the loss that is gone; above 1: faster than eager."""

    proposal: Proposal
    explained: bool  # without it, the pair changes by more than noise
    attempt: Tried | None = None  # the best one
    share: Ends | None = None

    @property
    def state(self) -> str:
        """``suspected``: it shows, but nothing removes it, or removing it changes nothing."""
        return "explained" if self.explained else "suspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The explanation of one candidate of one job."""

    title: str
    plain: Result
    causes: tuple[Tested, ...]
    attempts: tuple[Tried, ...]
    stages: tuple[Ratio, ...]  # each stage of the compiler over the one before it
    call: Mapping[str, Ends]  # what a part of the call takes, in us of a step
    excluded: tuple[str, ...]
    shown: tuple[str, ...]  # checks that are not clean
    balance: Mapping[str, tuple[float, float]]
    kernels: tuple[Kernel, ...] = ()
    together: Tested | None = None  # the causes that act, without all of them at once
    unseen: str = ""  # the status of the copy for looking, if it has no times

    @property
    def lost(self) -> bool:
        """Whether the candidate is slower than eager beyond noise."""
        return self.plain.verdict is Verdict.SLOWER

    @property
    def explained(self) -> tuple[Tested, ...]:
        return tuple(tested for tested in self.causes if tested.explained)

    @property
    def winner(self) -> Tried | None:
        """The fastest setting that helps; None: the plain candidate stays."""
        helping = (tried for tried in self.attempts if tried.helps)
        return max(helping, key=lambda tried: tried.comparison.speedup or 0.0, default=None)


def with_setting(candidate: str, setting: str) -> str:
    """The candidate with these settings; they replace those of the same name."""
    compiler, own = parts_of(candidate)
    added = parts_of(f"{compiler}[{setting}]")[1]
    names = {option.partition("=")[0] for option in added}
    return named(compiler, (*(option for option in own if option.partition("=")[0] not in names), *added))


def candidates_for(candidate: str, settings: Sequence[str]) -> tuple[str, ...]:
    """The candidates of one run. Each stands before the one that it is compared with, as pairs need it."""
    tried = (with_setting(candidate, setting) for setting in settings)
    return tuple(dict.fromkeys((*tried, candidate, *reversed(STAGES))))


def explain(
    candidate: str, records: Sequence[Record], proposed: Sequence[Proposal], looked: Looked | None
) -> Why:
    """The explanation, from the records of one job that timed all candidates in the same rounds.

    Raises ``NoTimes``.
    """
    summary = summarize(records)
    comparisons = {comparison.record.candidate: comparison for comparison in summary.comparisons}
    pairs = {(pair.record.candidate, pair.other.candidate): pair for pair in summary.of(PAIRS) if pair.other}
    plain = comparisons.get(candidate)
    if plain is None or not plain.n:
        status = "no record" if plain is None else plain.status.value
        raise NoTimes(f"{candidate} has no times ({status}), so there is nothing to explain")
    tried = {setting: with_setting(candidate, setting) for p in proposed for setting in p.settings}
    attempts = tuple(
        Tried(setting=setting, over_plain=pairs.get((name, candidate)), comparison=comparisons[name])
        for setting, name in tried.items()
        if name in comparisons
    )
    causes_tested = [_tested(proposal, attempts, plain) for proposal in proposed if proposal.cause]
    # even the best setting of such a cause makes the step slower, and all were compared
    compared = {tried.setting: tried.over_plain.verdict for tried in attempts if tried.over_plain is not None}
    refuted = {
        t.proposal.cause: t.attempt.setting
        for t in causes_tested
        if t.attempt
        and compared[t.attempt.setting] is Verdict.SLOWER
        and {*t.proposal.settings} <= {*compared}
    }
    excluded, shown = _checks(plain)
    seen = looked if looked is not None and looked.compiled else None
    stages = [name for name in (*STAGES, candidate) if name in comparisons]
    over = [comparisons[stages[0]].step, *(pairs.get((b, a)) for a, b in pairwise(stages))]
    return Why(
        title=job_title(plain.record.job),
        plain=plain,
        causes=(
            *(tested for tested in causes_tested if tested.proposal.cause not in refuted),
            *_capture(comparisons.get(STAGES[0]), plain),
        ),
        attempts=attempts,
        stages=tuple(pair for pair in over if pair is not None and pair.estimate is not None),
        call=_call(comparisons, candidate),
        excluded=(*excluded, *(f"not {cause} (slower with {setting})" for cause, setting in refuted.items())),
        shown=shown,
        balance={} if seen is None else seen.balance,
        kernels=() if seen is None else seen.kernel_rows,
        unseen=looked.record.status.value if looked is not None and seen is None else "",
    )


def _tested(proposal: Proposal, attempts: Sequence[Tried], plain: Result) -> Tested:
    if proposal.metric:
        return _measured(proposal, plain)
    mine = [a for a in attempts if a.setting in proposal.settings and a.over_plain is not None]
    best = max(mine, key=lambda attempt: attempt.gain, default=None)
    lost = plain.verdict is Verdict.SLOWER
    share = share_of_loss(plain.record.samples, best.comparison.record.samples) if best and lost else None
    large = proposal.part is None or proposal.part >= LEAST
    explained = best is not None and best.helps and share is not None and share.low > 0 and large
    return Tested(proposal=proposal, explained=explained, attempt=best, share=share)


def _measured(proposal: Proposal, plain: Result) -> Tested:
    """A cause whose own pair gives its microseconds; its share is their part of the loss."""
    us, share, known = _span(plain, proposal.metric), None, plain.estimate
    if us and known and known.interval and plain.verdict is Verdict.SLOWER:
        losses = [known.baseline_ms * 1e3 * (1 / exp(log) - 1) for log in (known.log, *known.interval)]
        if min(losses) > 0:
            share = Ends(*(end / loss for end, loss in zip(us, losses, strict=True)))
    noise_us = plain.record.job.protocol.noise_threshold * (plain.candidate_ms or 0.0) * 1e3
    explained = us is not None and share is not None and us.low > noise_us
    return Tested(proposal=proposal, explained=explained, share=share)


def _span(comparison: Result, metric: str) -> Ends | None:
    """The metric of this candidate with its interval; None if one of the three was not measured."""
    us, low, high = (comparison.number(f"candidate_{metric}{end}") for end in ("", "_low", "_high"))
    return None if us is None or low is None or high is None else Ends(us, low, high)


def _call(comparisons: Mapping[str, Result], candidate: str) -> Mapping[str, Ends]:
    """What is known of the cost of a call: the candidate's guards, and the net cost of Dynamo alone."""
    named = (
        ("guards", candidate, "guards_us"),
        ("guards, lookup and wrapper, less the Python code they replace", STAGES[0], "dynamo_us"),
    )
    known = ((words, comparisons[name], key) for words, name, key in named if name in comparisons)
    return {words: span for words, comparison, key in known if (span := _span(comparison, key))}


def acting(why: Why) -> Proposal | None:
    """All explained causes that settings remove, as one; None: fewer than two act."""
    tested = {cause.attempt.setting: cause for cause in why.explained if cause.attempt is not None}
    if len(tested) < 2:
        return None
    settings = dict.fromkeys(part for setting in tested for part in setting.split(","))
    return Proposal(
        cause=" and ".join(cause.proposal.cause for cause in tested.values()),
        sentence="Removed together.",
        evidence="each acts alone",
        settings=(",".join(settings),),
    )


def _capture(stage: Result | None, plain: Result) -> tuple[Tested, ...]:
    """The stage dynamo_eager as a cause: the same operators, or others, without any compiler behind it."""
    if plain.verdict is not Verdict.SLOWER or stage is None or stage.verdict is not Verdict.SLOWER:
        return ()
    share = share_of_loss(plain.record.samples, stage.record.samples)
    rest = None if share is None else Ends(1 - share.value, 1 - share.high, 1 - share.low)
    proposal = Proposal(
        cause=CAPTURE,
        sentence="Dynamo's capture alone is slower: its guards, or another path of the model's code.",
        evidence="dynamo_eager is slower than eager",
    )
    return (Tested(proposal=proposal, explained=rest is not None and rest.low > 0, share=rest),)


def share_of_loss(plain: Samples | None, other: Samples | None) -> Ends | None:
    """Which share of the plain candidate's loss against eager is gone with the other candidate.

    Loss and gain are pseudo-medians (Hodges and Lehmann) of log ratios of the same rounds. The interval is a
    percentile bootstrap over rounds (Efron 1979), so it lacks what varies between processes. None with too
    few rounds, or without a loss in at least 97.5 % of the resamples.
    """
    if plain is None or other is None:
        return None
    mine, theirs = rounds_of(plain), rounds_of(other)
    eager = dict(zip(mine, plain.baseline_s, strict=False))
    rounds = [key for key in mine if key in theirs]
    if len(rounds) < FEWEST:
        return None
    times = np.log([[eager[key], mine[key], theirs[key]] for key in rounds])
    loss, gain = times[:, 1] - times[:, 0], times[:, 1] - times[:, 2]
    chosen = np.random.default_rng(0).integers(len(rounds), size=(RESAMPLES, len(rounds)))
    losses, gains = (np.array([_pseudo_median(logs[c]) for c in chosen]) for logs in (loss, gain))
    if np.mean(losses > 0) < 0.975:
        return None
    low, high = np.percentile(gains[losses > 0] / losses[losses > 0], [2.5, 97.5])
    value = _pseudo_median(gain) / _pseudo_median(loss)
    return Ends(value, float(low), float(high))


def _pseudo_median(logs: Floats) -> float:
    """The middle of the Walsh averages, of which the others need no order."""
    rows, columns = pairs(logs.size)
    ranks = ((rows.size - 1) // 2, rows.size // 2)
    averages = np.partition((logs[rows] + logs[columns]) / 2, ranks)
    return float(averages[ranks[0]] + averages[ranks[1]]) / 2


def _checks(plain: Result) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the record excludes as a cause, and what it does not exclude; in words."""
    counts = [(plain.number(name), words) for name, words in CHECKS]
    checks = [(f"{count:g} {words}" if count else f"no {words}", bool(count)) for count, words in counts]
    before, after = (plain.number(f"{side}_minor_faults") or 0.0 for side in ("baseline", "candidate"))
    checks.append((f"page faults {before:g} -> {after:g} a step", after > before + MANY_FAULTS))
    other = plain.record.job.baseline_dtype not in (None, plain.record.job.dtype)
    checks.append(("another precision" if other else "the same precision", other))
    excluded, shown = (tuple(words for words, shows in checks if shows is side) for side in (False, True))
    return excluded, shown
