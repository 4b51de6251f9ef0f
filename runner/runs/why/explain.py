"""From records to the explanation of one candidate: which causes were tested, and what removing them gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from harness.backends.settings.candidates import named, parts_of
from harness.schema import Record, Samples
from runner.analysis.derive import summarize
from runner.analysis.ratios import FEWEST, rounds_of
from runner.analysis.results import PAIRS, Comparison, Ratio, exp
from runner.analysis.statistics import middle, walsh_averages
from runner.analysis.verdicts import Verdict
from runner.labels import job_title
from runner.runs.why.causes import causes, cost_of, settings_of
from runner.runs.why.looked import STEP, Kernel, Looked

STAGES = ("dynamo_eager", "aot_eager")
CAPTURE = "capture"
MOST = 3  # candidates that remove a cause; with the stages and the copy for looking, six compilations
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
class Proposal:
    """A cause that shows, and what removes it. Without settings and without a metric it is only suspected."""

    cause: str  # "" of settings that are tested without one, by --tune
    sentence: str
    evidence: str
    settings: tuple[str, ...] = ()
    metric: str = ""  # us of the step that the cause takes, measured in pairs, with its interval
    part: float | None = None  # of the compiled step, under the profiler; None if not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One candidate with a setting: its pairs with the plain candidate and with eager."""

    setting: str
    over_plain: Ratio | None  # None: it did not pass, or shares too few rounds
    comparison: Comparison

    @property
    def verdict(self) -> Verdict | None:
        """Over the plain candidate."""
        return self.over_plain.verdict if self.over_plain else None

    @property
    def gain(self) -> float:
        """The speedup over the plain candidate; 0 if it is not known."""
        known = self.over_plain and self.over_plain.estimate
        return known.factor if known else 0.0

    @property
    def helps(self) -> bool:
        return self.verdict is Verdict.FASTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A proposed cause after the test. ``share``: of the loss that is gone; above 1: faster than eager."""

    proposal: Proposal
    explained: bool  # without it, the pair changes by more than noise
    attempt: Attempt | None = None  # the best one
    share: Ends | None = None

    @property
    def state(self) -> str:
        """``suspected``: it shows, but nothing removes it, or removing it changes nothing."""
        return "explained" if self.explained else "suspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The explanation of one candidate of one job."""

    title: str
    plain: Comparison
    causes: tuple[Tested, ...]
    attempts: tuple[Attempt, ...]
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


def proposals(looked: Looked) -> tuple[Proposal, ...]:
    """The causes whose signatures show, the most costly first, with the settings that remove them."""
    if not looked.compiled:  # the copy for looking failed
        return ()
    costs = {cause.NAME: cost_of(cause, looked) for cause in causes()}
    step = looked.compiled.get(STEP) or 1
    return tuple(
        Proposal(
            cause=cause.NAME,
            sentence=cause.SENTENCE,
            evidence=evidence,
            settings=settings_of(cause, looked),
            metric=getattr(cause, "METRIC", ""),
            part=None if (ms := costs[cause.NAME]) is None else ms / step,
        )
        for cause in sorted(causes(), key=lambda cause: -(costs[cause.NAME] or 0.0))
        if (evidence := cause.signature(looked))
    )


def settings_to_try(proposed: Sequence[Proposal]) -> tuple[str, ...]:
    """The first settings of each cause in turn, then the second ones; at most ``MOST``."""
    turns = chain.from_iterable(zip_longest(*(proposal.settings for proposal in proposed)))
    return tuple(dict.fromkeys(filter(None, turns)))[:MOST]


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
        Attempt(setting=setting, over_plain=pairs.get((name, candidate)), comparison=comparisons[name])
        for setting, name in tried.items()
        if name in comparisons
    )
    causes_tested = [_tested(proposal, attempts, plain) for proposal in proposed if proposal.cause]
    # even the best setting of such a cause makes the step slower, and all were compared
    compared = {attempt.setting for attempt in attempts if attempt.over_plain is not None}
    refuted = {
        t.proposal.cause: t.attempt.setting
        for t in causes_tested
        if t.attempt and t.attempt.verdict is Verdict.SLOWER and {*t.proposal.settings} <= compared
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


def _tested(proposal: Proposal, attempts: Sequence[Attempt], plain: Comparison) -> Tested:
    if proposal.metric:
        return _measured(proposal, plain)
    mine = [a for a in attempts if a.setting in proposal.settings and a.over_plain is not None]
    best = max(mine, key=lambda attempt: attempt.gain, default=None)
    share = _share(plain, best.comparison) if best else None
    large = proposal.part is None or proposal.part >= LEAST
    explained = best is not None and best.helps and share is not None and share.low > 0 and large
    return Tested(proposal=proposal, explained=explained, attempt=best, share=share)


def _measured(proposal: Proposal, plain: Comparison) -> Tested:
    """A cause whose own pair gives its microseconds; its share is their part of the loss."""
    us, share, known = _span(plain, proposal.metric), None, plain.estimate
    if us and known and known.interval and plain.verdict is Verdict.SLOWER:
        losses = [known.baseline_ms * 1e3 * (1 / exp(log) - 1) for log in (known.log, *known.interval)]
        if min(losses) > 0:
            share = Ends(*(end / loss for end, loss in zip(us, losses, strict=True)))
    noise_us = plain.record.job.protocol.noise_threshold * (plain.candidate_ms or 0.0) * 1e3
    explained = us is not None and share is not None and us.low > noise_us
    return Tested(proposal=proposal, explained=explained, share=share)


def _span(comparison: Comparison, metric: str) -> Ends | None:
    """The metric of this candidate with its interval; None if one of the three was not measured."""
    us, low, high = (comparison.number(f"candidate_{metric}{end}") for end in ("", "_low", "_high"))
    return None if us is None or low is None or high is None else Ends(us, low, high)


def _call(comparisons: Mapping[str, Comparison], candidate: str) -> Mapping[str, Ends]:
    """What is known of the cost of a call: the candidate's guards, and the net cost of Dynamo alone."""
    named = (
        ("guards", candidate, "guards_us"),
        ("guards, lookup and wrapper, less the Python code they replace", STAGES[0], "dynamo_us"),
    )
    known = ((words, comparisons[name], key) for words, name, key in named if name in comparisons)
    return {words: span for words, comparison, key in known if (span := _span(comparison, key))}


def acting(why: Why) -> tuple[Tested, ...]:
    """The explained causes whose settings can be tested together: at least two, or none."""
    tested = {cause.attempt.setting: cause for cause in why.explained if cause.attempt is not None}
    return tuple(tested.values()) if len(tested) > 1 else ()


def together_setting(why: Why) -> str:
    """The settings of all causes that act, as one."""
    settings = [cause.attempt.setting for cause in acting(why) if cause.attempt]
    return ",".join(dict.fromkeys(part for setting in settings for part in setting.split(",")))


def with_together(why: Why, candidate: str, records: Sequence[Record]) -> Why:
    """The explanation with a second run, which timed the candidate without all causes that act."""
    setting = together_setting(why)
    proposal = Proposal(
        cause=" and ".join(cause.proposal.cause for cause in acting(why)),
        sentence="Removed together.",
        evidence="each acts alone",
        settings=(setting,),
    )
    second = explain(candidate, records, (proposal,), None)  # no cause if the step is slower with it
    return replace(why, together=next(iter(second.causes), None), attempts=(*why.attempts, *second.attempts))


def _capture(stage: Comparison | None, plain: Comparison) -> tuple[Tested, ...]:
    """The stage dynamo_eager as a cause: the same operators, or others, without any compiler behind it."""
    if plain.verdict is not Verdict.SLOWER or stage is None or stage.verdict is not Verdict.SLOWER:
        return ()
    share = _share(plain, stage)
    rest = None if share is None else Ends(1 - share.value, 1 - share.high, 1 - share.low)
    proposal = Proposal(
        cause=CAPTURE,
        sentence="Dynamo's capture alone is slower: its guards, or another path of the model's code.",
        evidence="dynamo_eager is slower than eager",
    )
    return (Tested(proposal=proposal, explained=rest is not None and rest.low > 0, share=rest),)


def _share(plain: Comparison, other: Comparison) -> Ends | None:
    lost = plain.verdict is Verdict.SLOWER
    return share_of_loss(plain.record.samples, other.record.samples) if lost else None


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
    losses = np.array([middle(walsh_averages(loss[places])) for places in chosen])
    gains = np.array([middle(walsh_averages(gain[places])) for places in chosen])
    if np.mean(losses > 0) < 0.975:
        return None
    low, high = np.percentile(gains[losses > 0] / losses[losses > 0], [2.5, 97.5])
    value = middle(walsh_averages(gain)) / middle(walsh_averages(loss))
    return Ends(value, float(low), float(high))


def _checks(plain: Comparison) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the record excludes as a cause, and what it does not exclude; in words."""
    counts = [(plain.number(name), words) for name, words in CHECKS]
    checks = [(f"{count:g} {words}" if count else f"no {words}", bool(count)) for count, words in counts]
    before, after = (plain.number(f"{side}_minor_faults") or 0.0 for side in ("baseline", "candidate"))
    checks.append((f"page faults {before:g} -> {after:g} a step", after > before + MANY_FAULTS))
    other = plain.record.job.baseline_dtype not in (None, plain.record.job.dtype)
    checks.append(("another precision" if other else "the same precision", other))
    excluded, shown = (tuple(words for words, shows in checks if shows is side) for side in (False, True))
    return excluded, shown
