"""``release.md``: what each other environment of a run (``--envs``) changes, by severity, on one page.

Every compiled step stands beside the same step in the reference environment, in the same rounds, and eager
beside eager: a loss that eager has, too, is not the compiler's alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness.schema import Record
from runner.analysis.columns import Column, text_column
from runner.analysis.digits import MISSING, estimate_text
from runner.analysis.ratios import keys_of
from runner.analysis.results import CONTROL, EAGER_STEP, STEP, Estimate
from runner.analysis.statistics import geomean
from runner.analysis.texts import mean_text
from runner.analysis.verdicts import Limits, Verdict
from runner.errors import UsageError
from runner.names import plain
from runner.reports.markdown import LIMIT, fitted, list_block, text, view_blocks
from runner.reports.parts.view import View
from runner.runs.compare.changes import FIXED, NEW_FAILURE, Change, changes_between
from runner.runs.compare.run import Run, environments_of, in_environment, run_of

FILE = "release.md"
SIZES = ((0.2, "of 20 % or more"), (0.1, "of 10 to 20 %"), (0.0, "below 10 %"))
LOSSES, GAINS = ([f"{word} {size}" for _, size in SIZES] for word in ("loss", "gain"))
FAILING, PASSING, SAME, OPEN, BOTH = "newly failing", "newly passing", "same", "not judged", "fails in both"
WORSE, UNMOVED = (FAILING, *LOSSES), (SAME, OPEN, BOTH)
CLASSES = (*WORSE, PASSING, *GAINS, *UNMOVED)
CONFIRMED, REFUTED, ALONE = "confirmed", "not confirmed", "not rerun"
FAMILY = re.compile(r"(?:tf_|hf_)?([A-Za-z]+?)(?=For[A-Z]|[^A-Za-z]|$)")
NOTES = """\
Speed: the step's time in the reference environment over its time in the other, in the same rounds. A loss or
gain has a closed verdict: the 95 % interval is beyond the noise threshold, and q is below alpha. Its class is
that of the estimate: 0.80x and less is a loss of 20 % or more, 1.20x and more a gain of 20 % or more.

Not judged: inconclusive, unsteady, or not timed in both.

Confirmed by rerun: at least two processes (--processes, --confirm) each show this ending, or a change in this
direction beyond the threshold. Not rerun: there was one process.

Eager stable: eager's own verdict is same. A family is a model's name up to its first digit, underscore or
For, without tf_ and hf_; it counts once.
"""


class Moved(NamedTuple):
    """A model with a compiler, or with eager, in an environment beside the reference."""

    env: str
    change: Change
    quantity: str  # ``STEP``, or ``EAGER_STEP``
    severity: str
    again: str  # whether fresh processes confirm it; "": nothing moved

    @property
    def candidate(self) -> str:
        return self.change.first.compiler if self.quantity == STEP else CONTROL

    @property
    def where(self) -> str:
        return ", ".join(self.change.first.conditions[n] for n in ("suite", "mode", "precision", "device"))

    @property
    def family(self) -> str:
        known = FAMILY.match(self.change.first.name)
        return (known[1] if known else self.change.first.name).lower()

    def speed(self, quantity: str) -> Estimate | None:
        """How many times as fast the environment is as the reference."""
        time = self.change.of(quantity)
        if time is None:
            return None
        return Estimate(log=-time.log, interval=time.interval and (-time.interval[1], -time.interval[0]))


def release_page(path: Path, records: Sequence[Record], processes: Sequence[Record]) -> dict[str, bytes]:
    """The page by its file name; {} if no compiled result has several environments.

    ``records``: the results; ``processes``: the flat records that they are of.
    """
    run, names = run_of(path, records), environments_of(records)
    if not (rows := [*moves(run, processes)]):
        return {}
    facts = {name: in_environment(run, name).facts.items() for name in names}
    lines = [f"{name}: {', '.join(f'{fact} {text}' for fact, text in own)}" for name, own in facts.items()]
    blocks = [text(f"# Release page: {plain(' beside '.join((*names[1:], names[0])))}")]
    blocks += [list_block(lines), *(block for view in VIEWS for block in view_blocks(view, rows))]
    blocks += [
        text("## How it is judged"),
        list_block(" ".join(note.split()) for note in NOTES.split("\n\n")),
    ]
    return {FILE: fitted(blocks, LIMIT).encode()}


def moves(run: Run, processes: Sequence[Record]) -> Iterator[Moved]:
    """Each compiled result in each environment but the reference, and eager once for each model."""
    reference, *others = environments_of(result.record for result in run.results) or ("",)
    for env in others:
        try:
            changes = changes_between(in_environment(run, reference), in_environment(run, env)).changes
        except UsageError:  # no compiled result in common
            continue
        models = {change.second.record.job.key: change for change in changes if change.of(EAGER_STEP)}
        for change, quantity in [(c, STEP) for c in changes] + [(c, EAGER_STEP) for c in models.values()]:
            word = severity(change, quantity)
            yield Moved(env, change, quantity, word, _again(change, quantity, word, processes))


def severity(change: Change, quantity: str) -> str:
    """One of ``CLASSES``."""
    if change.ending in (NEW_FAILURE, FIXED):
        return FAILING if change.ending == NEW_FAILURE else PASSING
    ratio = change.ratios.get(quantity)
    if ratio is None or ratio.estimate is None:
        return BOTH if not change.first.passed and change.second.record.status.counted else OPEN
    if ratio.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return SAME if ratio.verdict is Verdict.SAME else OPEN
    speed = 1 / ratio.estimate.factor
    place = next(place for place, (least, _) in enumerate(SIZES) if abs(speed - 1) >= least)
    return (GAINS if speed > 1 else LOSSES)[place]


def _again(change: Change, quantity: str, word: str, processes: Sequence[Record]) -> str:
    if word in UNMOVED:
        return ""
    after = change.second.record
    if word in (FAILING, PASSING):
        own = [r for r in processes if (r.job.key, r.candidate) == (after.job.key, after.candidate)]
        shown = [record.status.passed is (word == PASSING) for record in own if not record.experiment]
    else:
        limit, sign = Limits.of(after.job.protocol).log, 1 if word in GAINS else -1
        shown = [sign * log > limit for log in _of_processes(change, quantity)]
    return ALONE if len(shown) < 2 else CONFIRMED if sum(shown) > 1 else REFUTED


def _of_processes(change: Change, quantity: str) -> list[float]:
    """The median logarithm of the speed in each process."""
    before, after = (
        dict(zip(keys_of(s, apart=True), s.candidate_s if quantity == STEP else s.baseline_s, strict=True))
        for s in (record.samples for record in change.records)
        if s is not None
    )
    logs: dict[int, list[float]] = {}
    for key in before.keys() & after.keys():
        logs.setdefault(key[0], []).append(math.log(before[key] / after[key]))
    return [median(own) for own in logs.values()]


# -- views ---------------------------------------------------------------------------------------------

Count = tuple[Moved, Sequence[Moved]]
"""The first row of a place, environment and candidate, and all of them."""


def _counts(rows: Sequence[Moved]) -> list[Count]:
    groups: dict[tuple[str, str, str], list[Moved]] = {}
    for row in rows:
        groups.setdefault((row.where, row.env, row.candidate), []).append(row)
    return [(own[0], own) for own in groups.values()]


def _columns_of_counts(_: Sequence[Moved]) -> Iterator[Column[Count]]:
    yield text_column("models", lambda count: plain(count[0].where))
    yield text_column("environment", lambda count: plain(count[0].env))
    yield text_column("step of", lambda count: plain(count[0].candidate))
    for word in CLASSES:
        yield text_column(word, partial(_number, word))
    yield text_column("all", lambda count: str(len(count[1])))
    yield text_column("speed, geometric mean [95 % over models]", _speed)
    yield text_column("families with a loss or failure", _families)
    yield text_column("losses with eager stable", _stable)
    yield text_column("losses and failures confirmed by rerun", _confirmed)


def _number(word: str, count: Count) -> str:
    return str(sum(row.severity == word for row in count[1]) or MISSING)


def _speed(count: Count) -> str:
    speeds = [speed for row in count[1] if (speed := row.speed(row.quantity)) is not None]
    return f"{mean_text(geomean(speeds))}, {len(speeds)}/{len(count[1])}"


def _families(count: Count) -> str:
    worse = {row.family for row in count[1] if row.severity in WORSE}
    return f"{len(worse)} of {len({row.family for row in count[1]})}"


def _stable(count: Count) -> str:
    """Of a compiler's losses."""
    losses = [row for row in count[1] if row.quantity == STEP and row.severity in LOSSES]
    eager = [severity(row.change, EAGER_STEP) for row in losses]
    opened = f" ({eager.count(OPEN)} not judged)" if OPEN in eager else ""
    return f"{eager.count(SAME)} of {len(losses)}{opened}" if losses else MISSING


def _confirmed(count: Count) -> str:
    again = [row.again for row in count[1] if row.severity in WORSE]
    alone = f" ({again.count(ALONE)} {ALONE})" if ALONE in again else ""
    return f"{again.count(CONFIRMED)} of {len(again)}{alone}" if again else MISSING


def _moved(rows: Sequence[Moved]) -> list[Moved]:
    """The worst first."""
    return sorted((row for row in rows if row.again), key=lambda row: CLASSES.index(row.severity))


def _columns_of_moved(_: Sequence[Moved]) -> Iterator[Column[Moved]]:
    yield text_column("model", lambda row: plain(row.change.first.name))
    yield text_column("family", lambda row: plain(row.family))
    yield text_column("models", lambda row: plain(row.where))
    yield text_column("environment", lambda row: plain(row.env))
    yield text_column("step of", lambda row: plain(row.candidate))
    yield text_column("severity", lambda row: row.severity)
    yield text_column("speed [95 % interval]", lambda row: estimate_text(row.speed(row.quantity)))
    yield text_column("eager's speed", lambda row: estimate_text(row.speed(EAGER_STEP)))
    yield text_column("rerun", lambda row: row.again)


VIEWS: tuple[View[Sequence[Moved], Any], ...] = (
    View("counts", _counts, _columns_of_counts, "By severity"),
    View("moved", _moved, _columns_of_moved, "What moved, the worst first"),
)
