"""Cross-environment parity: the eager results of two environments with the same weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from harness.parity import rule as parity
from harness.parity.chance import Chance
from harness.parity.reference import Reference, Tensors, make_reference
from harness.schema import Parity, Status, TensorError

MAY_DIFFER = ("output", "buffer")
"""Kinds of tensors: one version of a library may return more of them than another version."""


CrossParity = tuple[Status, Parity | None, tuple[str, ...]]
"""Status, parity (None if nothing was checked) and notes."""


def compare_eager(
    theirs: Reference,
    ours: Reference,
    made: Tensors,
    perturbed: Sequence[Tensors],
    chance: Callable[[], Chance],
) -> CrossParity:
    """Compares ``made`` (results of this environment's eager) with ``theirs`` (the reference environment's).

    ``perturbed``: results of the reference environment's eager with perturbed weights. (Such runs of this
    environment would share its errors.) ``chance``: the tensors that depend on random numbers here.
    """
    kept, made, notes = _comparable(theirs, made)
    again = [make_reference(theirs.exact, results, results, theirs.rule) for results in perturbed]
    found = parity.compare(kept, made, lambda: again)
    by_chance = chance() if found.failed else Chance()
    if by_chance.changed and by_chance.explains(parity.failing(kept, made), made, kept.eager):
        found = replace(found, random=by_chance.draws)
    return _judged(theirs, ours, found, notes)


def another_model(theirs: Reference, ours: Reference, problem: str) -> CrossParity:
    """A failure: the weights did not fit, for the reason ``problem``."""
    empty: dict[str, torch.Tensor] = {}
    found = parity.compare(replace(theirs, eager=empty), empty)
    zeros = dict.fromkeys(
        ("scale", "eager_rmse", "candidate_rmse", "allowed", "candidate_max", "allowed_max"), 0.0
    )
    worst = TensorError(name="model", numel=0, **zeros, failure=problem)
    return _judged(theirs, ours, replace(found, tensors=1, failed=1, worst=worst))


def _judged(theirs: Reference, ours: Reference, found: Parity, notes: tuple[str, ...] = ()) -> CrossParity:
    status = Status.FAIL_ACCURACY if found.failed else Status.PASS
    if found.random:
        status = Status.CANNOT_JUDGE
    if not (theirs.can_judge and ours.can_judge):
        status = Status.EAGER_TWO_RUNS_DIFFER
    return status, found, notes


def _comparable(theirs: Reference, ours: Tensors) -> tuple[Reference, Tensors, tuple[str, ...]]:
    """Both without the outputs and buffers that only one of them has, and a note that names these.

    Another version of a library may return more outputs. If the two have no output in common, nothing is
    removed, and the comparison fails.
    """
    apart = {name for name in theirs.eager.keys() ^ ours.keys() if name.split(".", 1)[0] in MAY_DIFFER}
    if not apart or not any(name.startswith("output") for name in theirs.eager.keys() & ours.keys()):
        return theirs, ours, ()
    kept = {name: value for name, value in theirs.eager.items() if name not in apart}
    note = f"not compared between environments, because only one has them: {', '.join(sorted(apart)[:5])}"
    note += f" and {len(apart) - 5} more" if len(apart) > 5 else ""
    return replace(theirs, eager=kept), {n: v for n, v in ours.items() if n not in apart}, (note,)
