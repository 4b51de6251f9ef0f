"""Export and import of weights, inputs and eager's results, from the reference environment to the others.

From the same seed, another version of a library may draw other random weights. With these files all
environments run the same step, so that the outputs, losses and gradients of their eager can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.parity.measure import Error
from harness.parity.rule import Rule, Truth
from harness.tensors import Tensors, map_tensors, named_tensors
from harness.workload import Workload

File = dict[str, Any]
"""Part -> tensors by name; the last part: tensor -> errors of noisy runs."""

WEIGHTS, INPUTS, EAGER, EXACT, NOISE = "weights", "inputs", "eager", "exact", "noise"
SCALE = "loss_scale"
SHOWN = 3  # names of parameters in a sentence


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
        truth = Truth.of(rule, exact or None, eager, ())
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
            shown = ", ".join(sorted(names)[:SHOWN])
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            return f"another model: only {side} {what} {shown}{more}"
    for name, value in own.items():
        other = given[name]
        if other.shape != value.shape or other.dtype != value.dtype:
            forms = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (other, value)]
            return f"another model: {what} {name} is {forms[0]} in the reference environment, {forms[1]} here"
    return ""
