"""``release.md``: what each other environment of a run (``--envs``) changes, by severity, on one page.

Every compiled step stands beside the same step in the reference environment, in the same rounds, and eager
beside eager: a loss that eager has, too, is not the compiler's alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness.schema import Record
from runner.analysis.columns import text_column
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
    """A model with a compiler, or with eager (``EAGER_STEP``), in an environment beside the reference."""

    env: str
    change: Change
    quantity: str
    severity: str
    again: str  # whether fresh processes confirm it; "": nothing moved

    @property
    def group(self) -> tuple[str, ...]:
        """The place, the environment and the candidate."""
        where = ", ".join(self.change.first.conditions[n] for n in ("suite", "mode", "precision", "device"))
        return where, self.env, self.change.first.compiler if self.quantity == STEP else CONTROL

    @property
    def family(self) -> str:
        known = FAMILY.match(self.change.first.name)
        return (known[1] if known else self.change.first.name).lower()

    def speed(self, quantity: str) -> Estimate | None:
        """How many times as fast the environment is as the reference."""
        if (time := self.change.of(quantity)) is None:
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
    blocks = [text(f"# Release page: {plain(' beside '.join((*names[1:], names[0])))}"), list_block(lines)]
    blocks += [block for view in VIEWS for block in view_blocks(view, rows)]
    notes = list_block(" ".join(note.split()) for note in NOTES.split("\n\n"))
    return {FILE: fitted([*blocks, text("## How it is judged"), notes], LIMIT).encode()}


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


# -- the views: a row is several ``Moved`` of one group, or one of them -------------------------------------


def _counts(rows: Sequence[Moved]) -> list[list[Moved]]:
    return [[row for row in rows if row.group == group] for group in dict.fromkeys(r.group for r in rows)]


def _number(word: str, rows: Sequence[Moved]) -> str:
    return str(sum(row.severity == word for row in rows) or MISSING)


def _speed(rows: Sequence[Moved]) -> str:
    speeds = [speed for row in rows if (speed := row.speed(row.quantity)) is not None]
    return f"{mean_text(geomean(speeds))}, {len(speeds)}/{len(rows)}"


def _families(rows: Sequence[Moved]) -> str:
    worse = {row.family for row in rows if row.severity in WORSE}
    return f"{len(worse)} of {len({row.family for row in rows})}"


def _stable(rows: Sequence[Moved]) -> str:
    losses = [row for row in rows if row.quantity == STEP and row.severity in LOSSES]
    return _share([severity(row.change, EAGER_STEP) for row in losses], SAME, OPEN)


def _confirmed(rows: Sequence[Moved]) -> str:
    return _share([row.again for row in rows if row.severity in WORSE], CONFIRMED, ALONE)


def _share(words: list[str], counted: str, unknown: str) -> str:
    """``1 of 2 (1 not rerun)``"""
    more = f" ({words.count(unknown)} {unknown})" if unknown in words else ""
    return f"{words.count(counted)} of {len(words)}{more}" if words else MISSING


OF_COUNTS: dict[str, Callable[[Sequence[Moved]], str]] = {
    "models": lambda rows: plain(rows[0].group[0]),
    "environment": lambda rows: plain(rows[0].env),
    "step of": lambda rows: plain(rows[0].group[2]),
    **{word: partial(_number, word) for word in CLASSES},
    "all": lambda rows: str(len(rows)),
    "speed, geometric mean [95 % over models]": _speed,
    "families with a loss or failure": _families,
    "losses with eager stable": _stable,
    "losses and failures confirmed by rerun": _confirmed,
}
OF_MOVED: dict[str, Callable[[Moved], str]] = {
    "model": lambda row: plain(row.change.first.name),
    "family": lambda row: plain(row.family),
    "models": lambda row: plain(row.group[0]),
    "environment": lambda row: plain(row.env),
    "step of": lambda row: plain(row.group[2]),
    "severity": lambda row: row.severity,
    "speed [95 % interval]": lambda row: estimate_text(row.speed(row.quantity)),
    "eager's speed": lambda row: estimate_text(row.speed(EAGER_STEP)),
    "rerun": lambda row: row.again,
}
VIEWS: tuple[View[Sequence[Moved], Any], ...] = (
    View("counts", _counts, lambda _: [text_column(*column) for column in OF_COUNTS.items()], "By severity"),
    View(
        "moved",
        lambda rows: sorted((r for r in rows if r.again), key=lambda row: CLASSES.index(row.severity)),
        lambda _: [text_column(*column) for column in OF_MOVED.items()],
        "What moved, the worst first",
    ),
)
