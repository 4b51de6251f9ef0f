"""Parity between environments: eager's results with the same weights and inputs, which travel in files.

From the same seed, another version of a library may draw other random weights. With the reference
environment's file, all environments run the same step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.parity.checks import Checks
from harness.parity.measure import Error, family_of
from harness.parity.rule import Judgment, Rule, Truth, judge, why_not_judged
from harness.schema import Parity, Status
from harness.tensors import Tensors, listed, map_tensors, named_tensors
from harness.workload import Workload

File = dict[str, Any]
"""Part -> tensors by name; the last part: tensor -> errors of noisy runs."""

WEIGHTS, INPUTS, EAGER, EXACT, NOISE = "weights", "inputs", "eager", "exact", "noise"
SCALE = "loss_scale"
MAY_DIFFER = ("value", "buffer")
"""Kinds of tensors: one version of a library may return more of them than another version."""

CrossParity = tuple[Status, Parity | None, tuple[str, ...]]
"""Status, parity (None if nothing was checked) and notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An imported file. ``problem``: a sentence why its weights do not fit this model."""

    path: Path
    problem: str = ""
    loss_scale: float = 1.0

    def truth(self, rule: Rule, device: torch.device) -> Truth | None:
        """What the reference environment's eager says of the first call; None if parity is not checked."""
        file = _read(self.path)
        if EAGER not in file:
            return None
        exact, eager = (_to(file[part], device) for part in (EXACT, EAGER))
        truth = Truth.of(rule, exact or None, eager)
        return replace(
            truth, noise={name: [Error(**draw) for draw in draws] for name, draws in file[NOISE].items()}
        )


def export(path: Path, workload: Workload, truth: Truth | None, loss_scale: float = 1.0) -> None:
    """Writes the file. ``RuntimeError`` for a full disk."""
    scale = {SCALE: torch.tensor(loss_scale)}
    file: File = {WEIGHTS: _weights(workload.module), INPUTS: dict(_inputs(workload)), SCALE: scale}
    if truth is not None:
        noise = {name: [asdict(draw) for draw in draws] for name, draws in truth.noise.items()}
        file |= {EAGER: truth.eager, EXACT: truth.exact or {}, NOISE: noise}
    cpu = torch.device("cpu")
    torch.save({part: value if part == NOISE else _to(value, cpu) for part, value in file.items()}, path)


def imported(path: Path, workload: Workload) -> tuple[Imported, Workload]:
    """The workload with the exported weights and inputs; unchanged if these do not fit (``problem``)."""
    file = _read(path)
    weights, inputs = file[WEIGHTS], file[INPUTS]
    own = _weights(workload.module)
    problem = _difference("parameter", weights, own) or _difference("input", inputs, dict(_inputs(workload)))
    scale = float(file[SCALE][SCALE])
    if problem:
        return Imported(path=path, problem=problem, loss_scale=scale), workload
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])
    given = iter([inputs[name] for name, _ in _inputs(workload)])

    def next_one(tensor: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = next(given).to(tensor.device)
        return moved.requires_grad_(tensor.requires_grad)

    args, kwargs, target = map_tensors(_walked(workload), next_one)
    return Imported(path=path, loss_scale=scale), replace(workload, args=args, kwargs=kwargs, target=target)


def _read(path: Path) -> File:
    file: File = torch.load(path, map_location="cpu", weights_only=True)
    return file


def _to(tensors: Tensors, device: torch.device) -> dict[str, torch.Tensor]:
    """Copies of their own: a file would hold the whole memory that a view is a part of."""
    return {name: tensor.detach().clone().to(device) for name, tensor in tensors.items()}


def _weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of ``state_dict``: parameters and persistent buffers."""
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _walked(workload: Workload) -> tuple[Any, ...]:
    return workload.args, dict(workload.kwargs), workload.target


def _inputs(workload: Workload) -> Iterator[tuple[str, torch.Tensor]]:
    return named_tensors(_walked(workload), "given")


def _difference(what: str, given: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> str:
    """A sentence on the first difference in names, shapes or types; "" if there is none."""
    for side, names in (
        ("the reference environment has", given.keys() - own.keys()),
        ("this environment has", own.keys() - given.keys()),
    ):
        if names:
            return f"another model: only {side} {what} {listed(sorted(names))}"
    for name, value in own.items():
        other = given[name]
        if other.shape != value.shape or other.dtype != value.dtype:
            forms = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (other, value)]
            return f"another model: {what} {name} is {forms[0]} in the reference environment, {forms[1]} here"
    return ""


# -- the comparison -----------------------------------------------------------------


def compare_eager(theirs: Truth, ours: Tensors, checks: Checks) -> CrossParity:
    """Compares ``ours`` (results of this environment's eager) with ``theirs`` (the reference environment's).

    A tensor fails that is further off than each of the reference environment's noisy runs. (Noisy runs of
    this environment would share its errors.)
    """
    theirs, ours, notes = _comparable(theirs, ours)
    judgments = [judge(theirs, name, ours.get(name), 1) for name in dict.fromkeys((*theirs.eager, *ours))]
    failures = [judgment for judgment in judgments if judgment.form or _is_beyond_all(theirs, judgment)]
    status, random = Status.FAIL_ACCURACY if failures else Status.PASS, ""
    if failures:
        random = checks.chance(failures)
        status = Status.CANNOT_JUDGE if random else status
    if not checks.can_judge:
        status = Status.EAGER_TWO_RUNS_DIFFER
    parity = _parity(theirs, judgments, failures, checks.spread)
    unjudged = why_not_judged([theirs], training=checks.bench.training)
    if unjudged and status is Status.PASS:
        status = Status.CANNOT_JUDGE
    return status, replace(parity, random=random, unjudged=unjudged), notes


def _is_beyond_all(theirs: Truth, judgment: Judgment) -> bool:
    return any(
        judgment.error.of(figure) > theirs.loudest(judgment.name, figure) for figure in judgment.beyond
    )


def another_model(theirs: Truth, problem: str) -> CrossParity:
    """A failure: the weights did not fit, for the reason ``problem``."""
    failure = Judgment(name="model", call=1, form=problem)
    return Status.FAIL_ACCURACY, _parity(replace(theirs, eager={}), [failure], [failure], {}), ()


def _parity(
    theirs: Truth, judgments: Sequence[Judgment], failures: Sequence[Judgment], spread: Mapping[str, float]
) -> Parity:
    worst = max(failures or judgments, key=lambda judgment: judgment.used, default=None)
    error = None
    if worst is not None:
        error = worst.as_error(theirs, worst.form or (worst.words(theirs) if worst.beyond else None))
    return theirs.parity(spread, tensors=len(judgments), failed=len(failures), worst=error)


def _comparable(theirs: Truth, ours: Tensors) -> tuple[Truth, Tensors, tuple[str, ...]]:
    """Both without the outputs and buffers that only one of them has, and a note that names these.

    Another version of a library may return more outputs. If the two have no output in common, nothing is
    removed, and the comparison fails.
    """
    apart = {name for name in theirs.eager.keys() ^ ours.keys() if family_of(name) in MAY_DIFFER}
    if not apart or not any(name.startswith("output") for name in theirs.eager.keys() & ours.keys()):
        return theirs, ours, ()
    eager = {name: value for name, value in theirs.eager.items() if name not in apart}
    note = f"not compared between environments, because only one has them: {listed(sorted(apart), 5)}"
    return replace(theirs, eager=eager), {n: v for n, v in ours.items() if n not in apart}, (note,)
