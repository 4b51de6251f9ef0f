"""Which version to try next, and when it is sure: no processes, no files, only answers to questions.

Every question is a run of two versions in alternation, so no answer depends on an
earlier hour of the machine. The older side of nearly all of them is the oldest version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.changes.statistics import Estimate, Uncertain, estimate
from runner.errors import UsageError

THRESHOLD = 0.02  # a smaller change of the ends' speed is not followed
SURE = 0.01  # p of the ends' change
MOST_TRIES = 3  # of one version, each in processes of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one run says: how ``version`` did beside ``against``.

    ``speed``: ln(time of a compiled step in ``against`` / in ``version``), above 0 is faster; None
    where one of them has no valid time. ``rounds``: pairs behind it.
    """

    against: str
    version: str
    status_against: str
    status: str
    speed: Uncertain | None = None
    rounds: int = 0
    folder: str = ""
    failure: str = ""

    @property
    def factor(self) -> Estimate | None:
        return estimate(self.speed) if self.speed is not None else None


Measure = Callable[[str, str], Evidence]
"""``measure(older, newer)``. Raises ``UsageError`` where a version cannot be installed or used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How the search ended.

    ``what``: "status" or "speed"; "" where the ends do not differ. ``last_old`` and ``first_new``:
    neighbours, but for those in ``skipped`` (version -> why). ``sure``: False where the versions
    between could not be told apart. ``confirmed``: whether the two, measured side by side, differ;
    None where they were not.
    """

    what: str
    last_old: str
    first_new: str
    sure: bool = True
    confirmed: bool | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    steps: tuple[Evidence, ...] = ()


def search(versions: Sequence[str], measure: Measure, tell: Callable[[Evidence], None]) -> Found:
    """The first version that differs from the first as the last one does. ``UsageError`` for bad ends."""
    return _Search(versions, measure, tell).run()


class _Search:
    def __init__(self, versions: Sequence[str], measure: Measure, tell: Callable[[Evidence], None]) -> None:
        self._versions = tuple(versions)
        self._measure = measure
        self._tell = tell
        self._steps: list[Evidence] = []
        self._skipped: dict[str, str] = {}

    def run(self) -> Found:
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
        beside = self._ask(self._versions[low], self._versions[high]) if low else None
        confirmed = True if beside is None else _same_kind(beside, what, ends)
        return self._found(what, low, high, confirmed=confirmed)

    def _ask(self, older: str, newer: str) -> Evidence:
        found = self._measure(older, newer)
        self._steps.append(found)
        self._tell(found)
        return found

    def _middle(self, low: int, high: int) -> int | None:
        """The version nearest to the middle of those still open; None: there is none."""
        open_ = [i for i in range(low + 1, high) if self._versions[i] not in self._skipped]
        return min(open_, key=lambda i: (abs(2 * i - low - high), i), default=None)

    def _is_new(self, place: int, what: str, ends: Evidence) -> bool | None:
        """Whether this version does as the last one; None where it cannot be told.

        A speed is the new one where its interval lies wholly beyond half of the ends' change.
        """
        answers: list[Uncertain] = []
        for _ in range(MOST_TRIES):
            found = self._ask(self._versions[0], self._versions[place])
            if what == "status":
                return found.status != ends.status_against
            if found.speed is None:
                raise UsageError(f"{found.version} has no speed: it ended as {found.status}")
            answers.append(found.speed)
            new = _beyond_half(pooled(answers), ends)
            if new is not None:
                return new
        return None

    def _found(
        self, what: str, low: int, high: int, *, sure: bool = True, confirmed: bool | None = None
    ) -> Found:
        return Found(
            what=what,
            last_old=self._versions[low],
            first_new=self._versions[high],
            sure=sure,
            confirmed=confirmed,
            skipped=dict(self._skipped),
            steps=tuple(self._steps),
        )


def differs(found: Evidence) -> str:
    """ "status", "speed" or "": in what the two versions differ."""
    if found.status != found.status_against:
        return "status"
    factor = found.factor
    if factor is None or abs(math.log(factor.factor)) <= math.log(1 + THRESHOLD):
        return ""
    return "speed" if factor.p_value < SURE else ""


def _same_kind(beside: Evidence, what: str, ends: Evidence) -> bool:
    """Whether the two neighbours differ as the ends do."""
    if what == "status" or beside.speed is None or ends.speed is None:
        return beside.status != beside.status_against
    factor = beside.factor
    assert factor is not None
    return factor.p_value < SURE and (beside.speed.value > 0) == (ends.speed.value > 0)


def _beyond_half(found: Uncertain, ends: Evidence) -> bool | None:
    assert ends.speed is not None
    half = ends.speed.value / 2
    judged = estimate(found)
    low, high = math.log(judged.low), math.log(judged.high)
    if low <= half <= high:
        return None
    return (found.value > half) == (ends.speed.value > 0)


def pooled(answers: Sequence[Uncertain]) -> Uncertain:
    """Several runs' answers: their mean. From two on its error is their own spread where that is larger."""
    if len(answers) == 1:
        return answers[0]
    count = len(answers)
    mean = sum(answer.value for answer in answers) / count
    within = math.sqrt(sum(answer.se**2 for answer in answers)) / count
    spread = math.sqrt(sum((answer.value - mean) ** 2 for answer in answers) / (count - 1) / count)
    if spread > within:
        return Uncertain(value=mean, se=spread, df=count - 1)
    return Uncertain(value=mean, se=within, df=sum(answer.df for answer in answers))
