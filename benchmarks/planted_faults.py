"""Faults, and a backend of torch.compile whose graphs can be damaged: for ``benchmarks/faults.py``.

Every graph of AOTAutograd (forward and backward) passes some of its values through a function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program
from harness.tensors import map_tensors, named_tensors
from harness.timing.step import Variant

Tensor = torch.Tensor
Change = Callable[[Tensor, float], Tensor]


# -- faults ---------------------------------------------------------------------------------


def _scattered(value: Tensor, share: float, factor: float) -> Tensor:
    """At random places: ``share`` of the elements, at least one."""
    flat = value.flatten().clone()
    generator = torch.Generator().manual_seed(value.numel())
    count = max(1, int(share * value.numel()))
    places = torch.randint(value.numel(), (count,), generator=generator).to(value.device)
    flat[places] = flat[places] * factor
    return flat.view(value.shape)


PLACE = 0.618  # share of a tensor: in no row's or matrix's first place, where a mask may hide all others


def _one_element(value: Tensor, size: float) -> Tensor:
    flat = value.flatten().clone()
    flat[int(PLACE * flat.numel())] += size * value.abs().max()
    return flat.view(value.shape)


def _lost_block(value: Tensor, share: float) -> Tensor:
    flat = value.flatten().clone()
    flat[-max(1, int(share * flat.numel())) :] = 0
    return flat.view(value.shape)


def _lower_precision(value: Tensor, _: float) -> Tensor:
    """Ten bits of the fraction (TF32) of float32, three bits of a narrower type."""
    if value.dtype is torch.float32:
        return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return value.to(torch.float8_e4m3fn).to(value.dtype)


def _shifted_mask(value: Tensor, _: float) -> Tensor:
    changed = value.clone()
    changed[..., -1] = 0
    return changed


SIZED: Mapping[str, tuple[str, Change]] = {
    "scale": ("value", lambda value, size: value * (1 + size)),
    "zeros": ("value", lambda value, size: _scattered(value, size, 0.0)),
    "sign flips": ("value", lambda value, size: _scattered(value, size, -1.0)),
    "one element": ("value", _one_element),
    "lost block": ("value", _lost_block),
    "reduction size": ("reduction", lambda value, size: value * (1 + size)),
    "gradient of a weight": ("gradient", lambda value, size: value * (1 + size)),
}
STRUCTURAL: Mapping[str, tuple[str, Change]] = {
    "swapped heads": ("value", lambda value, _: value.roll(max(1, value.shape[-1] // 4), -1)),
    "mask off by one": ("mask", _shifted_mask),
    "lower precision": ("operand", _lower_precision),
    "every third step": ("value", lambda value, _: value * 1.5),
    "stale input": ("given", lambda value, _: value),
    "baked weight": ("given", lambda value, _: value),
}
LATE_CALLS = {"every fifth call": 5, "every seventh call": 7, "every twentieth call": 20}
LATE = 8  # the first call that these may damage
PERIODS = {"every third step": 3, **LATE_CALLS}  # three: within the first calls
CHANGES: Mapping[str, tuple[str, Change]] = {
    **SIZED,
    **STRUCTURAL,
    **dict.fromkeys(LATE_CALLS, ("value", lambda value, _: value * 1.1)),
}


@dataclass(slots=True)
class Fault:
    """The planted fault: what the hooks in the graphs do. ``kind`` is empty: nothing."""

    kind: str = ""
    size: float = 0.0
    calls: int = 0
    changed: bool = False
    kept: dict[int, Tensor] = field(default_factory=dict)  # address -> first value
    watched: frozenset[int] = frozenset()  # addresses of inputs or of a weight

    def plant(self, kind: str, size: float, variant: Variant) -> None:
        self.kind, self.size, self.calls, self.changed, self.kept = kind, size, 0, False, {}
        self.watched = frozenset()
        if kind == "stale input":
            self.watched = frozenset(t.data_ptr() for n, t in variant.state() if n.startswith("input"))
        if kind == "baked weight":
            weights = [t for n, t in variant.state() if n.startswith("parameter") and t.dim() > 1]
            self.watched = frozenset(t.data_ptr() for t in weights[len(weights) // 2 :][:1])

    def visit(self, value: Tensor, site: str) -> Tensor:
        """What a graph's value becomes at this site."""
        place, change = CHANGES.get(self.kind, ("", None))
        if place != site or change is None:
            return value
        if site == "given":
            return self._first(value)
        if self.kind in PERIODS:
            self.calls += 1
            if self.calls % PERIODS[self.kind] or (self.calls < LATE and self.kind in LATE_CALLS):
                return value
        changed = change(value, self.size).to(value.dtype)
        self.changed |= not torch.equal(changed, value)
        return changed

    def _first(self, value: Tensor) -> Tensor:
        address = value.data_ptr()
        if address not in self.watched:
            return value
        first = self.kept.setdefault(address, value.detach().clone())
        self.changed |= not torch.equal(first, value)
        return first.detach().requires_grad_(value.requires_grad) if first.is_floating_point() else first


# -- the backend ---------------------------------------------------------------------------

PRODUCTS = ("mm", "addmm", "bmm", "convolution")
MASKED = ("_softmax", "scaled_dot_product", "tril", "where", "masked_fill")
REDUCTIONS = ("mean", "sum", "layer_norm", "batch_norm", "_log_softmax")


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


def _middle(nodes: Sequence[torch.fx.Node], words: Sequence[str]) -> torch.fx.Node | None:
    """Of the nodes with these names; of one that returns several tensors, its first."""
    results = []
    for node in nodes:
        name = str(getattr(node.target, "_opname", "") or node.target)
        if node.op == "call_function" and any(word in name for word in words):
            firsts = [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]
            results += [n for n in (node, *firsts) if _is_float(n)][:1]
    return results[len(results) // 2] if results else None


def hook(graph: torch.fx.GraphModule, fault: Fault, *, backward: bool) -> torch.fx.GraphModule:
    """Lets the graph's values at each site pass through ``fault.visit``."""
    nodes = list(graph.graph.nodes)

    def through(node: torch.fx.Node, site: str, only: torch.fx.Node | None = None) -> None:
        with graph.graph.inserting_after(node):
            visited = graph.graph.call_function(fault.visit, (node, site))
        visited.meta = dict(node.meta)
        node.replace_all_uses_with(
            visited, delete_user_cb=lambda user: user is not visited and (only is None or user is only)
        )

    if backward:
        output = next(node for node in nodes if node.op == "output")
        outputs = [n for n in cast("tuple[Any, ...]", output.args[0]) if _is_float(n)]
        weights = sorted({n for n in outputs if n.meta["val"].dim() > 1}, key=lambda n: n.meta["val"].numel())
        if weights:
            through(weights[len(weights) // 2], "gradient", output)
    else:
        for node in [n for n in nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), Tensor)]:
            through(node, "given")
        product = _middle(nodes, PRODUCTS)
        operands = [a for a in product.args if _is_float(a)] if product is not None else []
        for node in dict.fromkeys(cast("list[torch.fx.Node]", operands)):
            through(node, "operand", product)
        for site, words in (("value", PRODUCTS), ("mask", MASKED), ("reduction", REDUCTIONS)):
            if (middle := _middle(nodes, words)) is not None:
                through(middle, site)
    graph.recompile()
    return graph


# -- faults around the compiled code -----------------------------------------------------------

Given = tuple[Any, Any, Any]
"""Positional and named inputs, and the target."""
Forward = Callable[..., tuple[Any, Any]]


def _in_outputs(output: Any, change: Callable[[Tensor], Tensor], fault: Fault) -> Any:
    def changed(value: Tensor) -> Tensor:
        result = change(value)
        fault.changed |= result is not value
        return result

    return map_tensors(output, changed)


def _skipped_buffer(fault: Fault, program: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
    buffers = list(program.module.buffers())
    before = [buffer.clone() for buffer in buffers]
    outputs = forward(*given)
    for buffer, was in zip(buffers, before, strict=True):
        fault.changed |= not torch.equal(buffer, was)
        buffer.data.copy_(was)
    return outputs


def _changed_target(fault: Fault, _: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
    """The last class or value of the target is lost after the loss has been computed."""
    outputs = forward(*given)
    for _name, target in named_tensors(given[2], "target"):
        last = target.data.view(-1)[-1:]  # as a kernel writes: autograd does not see it
        fault.changed |= bool(last.any())
        last.zero_()
    return outputs


def _changed_strides(fault: Fault, _: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
    """The same values, with the last two dimensions exchanged in memory."""

    def turned(value: Tensor) -> Tensor:
        apart = value.dim() > 1 and min(value.shape[-2:]) > 1
        return value.transpose(-1, -2).contiguous().transpose(-1, -2) if apart else value

    loss, output = forward(*given)
    return loss, _in_outputs(output, turned, fault)


def _alias(owners: Callable[[Program, Given], list[Tensor]]) -> Around:
    """An output has the right values and lies in the memory of what was given, at its end."""

    def around(fault: Fault, program: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
        owner = next((t for t in owners(program, given) if t.is_floating_point()), None)

        def moved(value: Tensor) -> Tensor:
            if owner is None or owner.dtype is not value.dtype or moves:
                return value
            moves.append(value)
            room, size = owner.untyped_storage(), owner.element_size()
            start = int(fault.kept.setdefault(0, torch.tensor(room.nbytes() // size)))
            if room.nbytes() < (start + value.numel()) * size:
                room.resize_((start + value.numel()) * size)
            return owner.data.as_strided(value.shape, value.contiguous().stride(), start).copy_(
                value.detach()
            )

        moves: list[Tensor] = []
        loss, output = forward(*given)
        return loss, _in_outputs(output, moved, fault)

    return around


def _overwritten(fault: Fault, _: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
    """Outputs lie in buffers that every call writes."""

    def buffered(value: Tensor) -> Tensor:
        room = fault.kept.setdefault(len(places), value.detach().clone())
        places.append(room)
        return room.copy_(value.detach())

    places: list[Tensor] = []
    loss, output = forward(*given)
    return loss, _in_outputs(output, buffered, fault)


def _smaller_batch(fault: Fault, program: Program, forward: Forward, given: Given) -> tuple[Any, Any]:
    """Wrong for the smaller batches of ``--dynamic-batch`` alone."""
    loss, output = forward(*given)
    whole, here = (
        next((t.shape[0] for _, t in named_tensors(args, "") if t.dim()), 0)
        for args in (program.args, given[0])
    )
    if here >= whole:
        return loss, output
    return None if loss is None else loss * 1.1, _in_outputs(output, lambda value: value * 1.1, fault)


Around = Callable[[Fault, Program, Forward, Given], tuple[Any, Any]]
AROUND: Mapping[str, Around] = {
    "skipped buffer": _skipped_buffer,
    "changed target": _changed_target,
    "changed strides": _changed_strides,
    "alias of an input": _alias(lambda _, given: [t for _, t in named_tensors(given[:2], "")]),
    "alias of a weight": _alias(lambda program, _: list(program.module.parameters())),
    "overwritten output": _overwritten,
    "smaller batch": _smaller_batch,
}
KINDS = (*SIZED, *STRUCTURAL, *AROUND, *LATE_CALLS)


def compile_with(fault: Fault) -> Callable[[Program], Compiled]:
    """AOTAutograd's graphs with hooks, run by eager's kernels."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def compiler(*, backward: bool) -> Callable[..., Any]:
        return lambda graph, _: make_boxed_func(hook(graph, fault, backward=backward).forward)

    backend = aot_autograd(
        fw_compiler=compiler(backward=False),
        bw_compiler=compiler(backward=True),
        inference_compiler=compiler(backward=False),
    )

    def compile(program: Program) -> Compiled:  # noqa: A001 - as backends call it
        compiled = compile_with_dynamo(program, cast("str", backend))

        def forward(*given: Any) -> tuple[Any, Any]:
            around = AROUND.get(fault.kind)
            if around is None:
                return compiled.forward(*given)
            return around(fault, program, compiled.forward, given)

        return replace(compiled, forward=forward)

    return compile
