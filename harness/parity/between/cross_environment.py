"""Cross-environment parity: the eager results of two environments with the same weights and inputs."""

from __future__ import annotations

from dataclasses import replace

from harness.parity.checks import Checks
from harness.parity.measure import family_of
from harness.parity.rule import Judgment, Truth, as_error, judge
from harness.parity.told.words import of_rank
from harness.schema import Parity, Status
from harness.tensors import Tensors

MAY_DIFFER = ("value", "buffer")
"""Kinds of tensors: one version of a library may return more of them than another version."""
SHOWN = 5

CrossParity = tuple[Status, Parity | None, tuple[str, ...]]
"""Status, parity (None if nothing was checked) and notes."""


def compare_eager(theirs: Truth, ours: Tensors, checks: Checks) -> CrossParity:
    """Compares ``ours`` (results of this environment's eager) with ``theirs`` (the reference environment's).

    A tensor fails that is further off than each of the reference environment's noisy runs. (Noisy runs of
    this environment would share its errors.)
    """
    theirs, ours, notes = _comparable(theirs, ours)
    judgments = [judge(theirs, name, ours.get(name), 1) for name in dict.fromkeys((*theirs.eager, *ours))]
    failures = [judgment for judgment in judgments if judgment.form or _is_beyond_all(theirs, judgment)]
    chance = checks.by_chance() if failures else None
    random = ""
    if chance is not None and chance.changed:
        of_wrong_form = {judgment.name for judgment in failures if judgment.form}
        if chance.explains({j.name for j in failures if j.beyond}, of_wrong_form):
            random = chance.draws
    parity = _parity(theirs, judgments, failures, random)
    status = Status.FAIL_ACCURACY if failures else Status.PASS
    if random:
        status = Status.CANNOT_JUDGE
    if not checks.can_judge:
        status = Status.EAGER_TWO_RUNS_DIFFER
    return status, parity, notes


def _is_beyond_all(theirs: Truth, judgment: Judgment) -> bool:
    return any(
        judgment.error.of(figure) > theirs.noisy(judgment.name, figure)[0] for figure in judgment.beyond
    )


def another_model(theirs: Truth, problem: str) -> CrossParity:
    """A failure: the weights did not fit, for the reason ``problem``."""
    failure = Judgment(name="model", call=1, form=problem)
    return Status.FAIL_ACCURACY, _parity(replace(theirs, eager={}), [failure], [failure], ""), ()


def _parity(theirs: Truth, judgments: list[Judgment], failures: list[Judgment], random: str) -> Parity:
    worst = max(failures or judgments, key=lambda judgment: judgment.used, default=None)
    error = None
    if worst is not None:
        why = worst.form or (of_rank(theirs, worst, None) if worst.beyond else None)
        error = as_error(theirs, worst, why)
    return Parity(
        rule=theirs.rule.name,
        reference="fp64" if theirs.exact is not None else "eager",
        tolerance=theirs.rule.delta,
        tensors=len(judgments),
        failed=len(failures),
        worst=error,
        eager_bit_equal=True,
        eager_spread=0.0,
        random=random,
    )


def _comparable(theirs: Truth, ours: Tensors) -> tuple[Truth, Tensors, tuple[str, ...]]:
    """Both without the outputs and buffers that only one of them has, and a note that names these.

    Another version of a library may return more outputs. If the two have no output in common, nothing is
    removed, and the comparison fails.
    """
    apart = {name for name in theirs.eager.keys() ^ ours.keys() if family_of(name) in MAY_DIFFER}
    if not apart or not any(name.startswith("output") for name in theirs.eager.keys() & ours.keys()):
        return theirs, ours, ()
    eager = {name: value for name, value in theirs.eager.items() if name not in apart}
    note = f"not compared between environments, because only one has them: {', '.join(sorted(apart)[:SHOWN])}"
    note += f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
    return replace(theirs, eager=eager), {n: v for n, v in ours.items() if n not in apart}, (note,)
