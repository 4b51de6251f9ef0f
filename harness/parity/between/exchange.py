"""Export and import of weights, inputs and eager's results, from the reference environment to the others.

From the same seed, another version of a library may draw other random weights. With these files all
environments run the same step, so that the outputs, losses and gradients of their eager can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.parity.between import safetensors_file
from harness.parity.measure import Error
from harness.parity.rule import Rule, Truth
from harness.tensors import map_tensors, named_tensors
from harness.workload import Workload

WEIGHT, INPUT, EAGER, EXACT = "weight/", "input/", "eager/", "exact/"
FACTS, COMPLEX = "reference", "complex"
SHOWN = 3  # names of parameters in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An imported file. ``problem``: a sentence why its weights do not fit this model."""

    path: Path
    problem: str = ""

    def truth(self, rule: Rule, device: torch.device) -> Truth | None:
        """What the reference environment's eager says of the first call; None if parity is not checked."""
        tensors, metadata = _read(self.path)
        if FACTS not in metadata:
            return None
        kept = (EAGER, EXACT)  # weights and inputs stay on the CPU
        tensors = {name: value.to(device) for name, value in tensors.items() if name.startswith(kept)}
        facts = json.loads(metadata[FACTS])
        truth = Truth.of(rule, _part(tensors, EXACT) if facts["exact"] else None, _part(tensors, EAGER), ())
        noise = {name: [Error(**draw) for draw in draws] for name, draws in facts["noise"].items()}
        return replace(truth, noise=noise)


def export(path: Path, workload: Workload, truth: Truth | None) -> None:
    """Writes the file. ``ValueError`` for tensors that it cannot store, ``OSError`` for a full disk."""
    tensors = {WEIGHT + name: value for name, value in _weights(workload.module).items()}
    tensors.update({INPUT + name: value for name, value in _inputs(workload)})
    metadata = {}
    if truth is not None:
        tensors.update({EAGER + name: value for name, value in truth.eager.items()})
        tensors.update({EXACT + name: value for name, value in (truth.exact or {}).items()})
        noise = {name: [asdict(draw) for draw in draws] for name, draws in truth.noise.items()}
        metadata[FACTS] = json.dumps({"exact": truth.exact is not None, "noise": noise})
    _write(path, tensors, metadata)


def imported(path: Path, workload: Workload) -> tuple[Imported, Workload]:
    """The workload with the exported weights and inputs; unchanged if these do not fit (``problem``)."""
    tensors = _read(path)[0]
    weights, inputs = _part(tensors, WEIGHT), _part(tensors, INPUT)
    own = _weights(workload.module)
    problem = _difference("parameter", weights, own) or _difference("input", inputs, dict(_inputs(workload)))
    if problem:
        return Imported(path=path, problem=problem), workload
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])
    given = iter([inputs[name] for name, _ in _inputs(workload)])

    def next_one(tensor: torch.Tensor) -> torch.Tensor:
        return next(given).to(tensor.device).requires_grad_(tensor.requires_grad)

    args, kwargs, target = map_tensors(_walked(workload), next_one)
    return Imported(path=path), replace(workload, args=args, kwargs=kwargs, target=target)


def _write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> None:
    metadata[COMPLEX] = json.dumps([name for name, value in tensors.items() if value.is_complex()])
    safetensors_file.write(path, {name: _as_real(value) for name, value in tensors.items()}, metadata)


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors, metadata = safetensors_file.read(path)
    for name in json.loads(metadata[COMPLEX]):
        tensors[name] = torch.view_as_complex(tensors[name])
    return tensors, metadata


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def _part(tensors: Mapping[str, torch.Tensor], start: str) -> dict[str, torch.Tensor]:
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


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
