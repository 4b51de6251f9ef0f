"""Selects the next version to measure, and decides when the search ends. It starts no processes.

Each step is a run of two versions in alternation, so no result depends on an earlier state of the
machine. In nearly all steps, one of the two is the oldest version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.analysis.estimate import Estimate
from runner.analysis.statistics import student
from runner.errors import UsageError

THRESHOLD = 0.02  # smaller changes between the first and the last version are not searched
SURE = 0.01  # largest p of a change between the first and the last version
MOST_TRIES = 3  # for each version, each in new processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The result of one run: ``version`` compared with ``against``.

    ``speed``: ln(time of a compiled step in ``against`` / in ``version``), above 0 is faster; None if one of
    them has no valid time. ``rounds``: the number of pairs.
    """

    against: str
    version: str
    status_against: str
    status: str
    speed: Estimate | None = None
    rounds: int = 0
    folder: str = ""
    failure: str = ""


Measure = Callable[[str, str], Evidence]
"""``measure(older, newer)``. Raises ``UsageError`` if a version cannot be installed or used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of the search.

    ``what``: "status" or "speed"; "" if the first and the last version do not differ. ``last_old`` and
    ``first_new``: neighboring versions, except for versions in ``skipped`` (version -> why). ``sure``: False
    if the versions between them could not be distinguished. ``confirmed``: whether ``last_old`` and
    ``first_new`` also differ when they are measured together; None if this was not measured.
    """

    what: str
    last_old: str
    first_new: str
    sure: bool = True
    confirmed: bool | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    steps: tuple[Evidence, ...] = ()


def search(versions: Sequence[str], measure: Measure, report: Callable[[Evidence], None]) -> SearchResult:
    """Finds the first version with the change between the ends. Raises ``UsageError`` for bad ends."""
    return _Search(versions, measure, report).run()


class _Search:
    def __init__(self, versions: Sequence[str], measure: Measure, report: Callable[[Evidence], None]) -> None:
        self._versions = tuple(versions)
        self._measure = measure
        self._report = report
        self._steps: list[Evidence] = []
        self._skipped: dict[str, str] = {}

    def run(self) -> SearchResult:
        ends = self._ask(self._versions[0], self._versions[-1])
        what = differs(ends)
        low, high = 0, len(self._versions) - 1
        while what and (middle := self._middle(low, high)) is not None:
            try:
                new = self._is_new(middle, what, ends)
            except UsageError as error:
                self._skipped[self._versions[middle]] = str(error)
                continue
            if new is None:
                return self._found(what, low, high, sure=False)
            low, high = (low, middle) if new else (middle, high)
        if not what or len(self._versions) == 2:
            return self._found(what, low, high, confirmed=True if what else None)
        beside = self._ask(self._versions[low], self._versions[high])
        confirmed = _same_kind(beside, what, ends)
        return self._found(what, low, high, confirmed=confirmed)

    def _ask(self, older: str, newer: str) -> Evidence:
        found = self._measure(older, newer)
        self._steps.append(found)
        self._report(found)
        return found

    def _middle(self, low: int, high: int) -> int | None:
        """The version nearest to the middle of the untested versions; None if there is none."""
        open_ = [i for i in range(low + 1, high) if self._versions[i] not in self._skipped]
        return min(open_, key=lambda i: (abs(2 * i - low - high), i), default=None)

    def _is_new(self, place: int, what: str, ends: Evidence) -> bool | None:
        """Whether this version behaves as the last version; None if this is uncertain.

        It has the new speed if the whole interval is beyond half of the change between first and last.
        """
        answers: list[Estimate] = []
        for _ in range(MOST_TRIES):
            found = self._ask(self._versions[0], self._versions[place])
            if what == "status":
                return found.status != ends.status_against
            if found.speed is None:
                raise UsageError(f"{found.version} has no speed: its status is {found.status}")
            answers.append(found.speed)
            new = _beyond_half(pooled(answers), ends)
            if new is not None:
                return new
        return None

    def _found(
        self, what: str, low: int, high: int, *, sure: bool = True, confirmed: bool | None = None
    ) -> SearchResult:
        return SearchResult(
            what=what,
            last_old=self._versions[low],
            first_new=self._versions[high],
            sure=sure,
            confirmed=confirmed,
            skipped=dict(self._skipped),
            steps=tuple(self._steps),
        )


def differs(found: Evidence) -> str:
    """ "status", "speed" or "": the difference between the two versions."""
    if found.status != found.status_against:
        return "status"
    speed = found.speed
    if speed is None or abs(speed.log) <= math.log1p(THRESHOLD):
        return ""
    return "speed" if speed.p_value < SURE else ""


def _same_kind(beside: Evidence, what: str, ends: Evidence) -> bool:
    """Whether two neighboring versions show the change between the ends."""
    if what == "status" or beside.speed is None or ends.speed is None:
        return beside.status != beside.status_against
    return beside.speed.p_value < SURE and (beside.speed.log > 0) == (ends.speed.log > 0)


def _beyond_half(speed: Estimate, ends: Evidence) -> bool | None:
    assert ends.speed is not None
    if speed.within(math.exp(ends.speed.log / 2)):
        return None
    return (speed.log > ends.speed.log / 2) == (ends.speed.log > 0)


def pooled(answers: Sequence[Estimate]) -> Estimate:
    """The mean over several runs. With two or more, its error is at least their spread."""
    if len(answers) == 1:
        return answers[0]
    count = len(answers)
    mean = sum(answer.log for answer in answers) / count
    within = [((answer.error or 0.0) ** 2 / count**2, answer.df) for answer in answers]
    spread = sum((answer.log - mean) ** 2 for answer in answers) / (count - 1) / count
    return student(mean, [(spread, count - 1.0)] if spread > sum(part for part, _ in within) else within)
