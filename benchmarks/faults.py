"""Plants faults into compiled models and counts how many of them the check of parity finds.

    python benchmarks/faults.py                  # all models, precisions, kinds and sizes: hours on two cores
    python benchmarks/faults.py --minutes 30     # as many cells as fit, in a random order
    python benchmarks/faults.py --only MLP_addition --dtypes float32 --modes training

A backend of torch.compile lets every graph of AOTAutograd (forward and backward) pass some of its values
through a function, which can damage them. One graph is compiled for each model, mode and precision (a cell);
faults are planted into it one after another. Before them, the same graph runs without a fault.
``--untouched`` names real compilers that run beside it: what fails there is a false alarm. Every fault is
judged by our rule, with all of its checks, and by the published rule of PyTorch's harness on the first and
the third call. A fault that changes no bit (a factor of 1.0001 in bfloat16) counts as not planted.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.backends.shared.dynamo import compile_with_dynamo  # noqa: E402 - nothing is installed
from harness.loading.suite_files import load_suite  # noqa: E402
from harness.parity.checks import Checks  # noqa: E402
from harness.parity.rule import compare_one, equal  # noqa: E402
from harness.parity.steps import FirstCalls  # noqa: E402
from harness.program import Compiled, Program  # noqa: E402
from harness.schema import Case, Job, Mode, Parity, Protocol, Setting, Status  # noqa: E402
from harness.timing.step import Variant  # noqa: E402
from harness.worker.attempts import JobFailed  # noqa: E402
from harness.worker.session import Session  # noqa: E402

MODELS = {
    "tiny_gpt": (
        *("MLP_addition", "MLP_shakespeare_16x64", "NanoGPT_addition", "HuggingFaceGPT_addition"),
        *("TLTransformer_shakespeare_64", "GPT_150k"),
    ),
    "huggingface": ("MobileBertForQuestionAnswering", "T5Small", "DistilBertForMaskedLM"),
    "timm_models": ("lcnet_050", "starnet_s1", "mobilenetv4_conv_small", "regnety_002"),
    "ops": ("matmul_xs", "attention_spelled_out"),
}
DTYPES = ("float32", "bfloat16", "amp")
MODES = ("training", "inference")
SIZES = (0.0001, 0.001, 0.005, 0.02, 0.1)
EVERY = 3  # steps
Tensor = torch.Tensor
Change = Callable[[Tensor, float], Tensor]


# -- faults ---------------------------------------------------------------------------------


def _places(value: Tensor, share: float) -> Tensor:
    """Random places: ``share`` of the elements, at least one."""
    generator = torch.Generator().manual_seed(value.numel())
    count = max(1, int(share * value.numel()))
    return torch.randint(value.numel(), (count,), generator=generator).to(value.device)


def _scattered(value: Tensor, share: float, factor: float) -> Tensor:
    flat = value.flatten().clone()
    places = _places(value, share)
    flat[places] = flat[places] * factor
    return flat.view(value.shape)


def _one_element(value: Tensor, size: float) -> Tensor:
    flat = value.flatten().clone()
    flat[flat.numel() // 2] += size * value.abs().max()
    return flat.view(value.shape)


def _lost_block(value: Tensor, share: float) -> Tensor:
    flat = value.flatten().clone()
    flat[-max(1, int(share * flat.numel())) :] = 0
    return flat.view(value.shape)


def _lower_precision(value: Tensor, _: float) -> Tensor:
    """Ten bits of the fraction (TF32) of float32, three bits of a narrower type."""
    if value.dtype is torch.float32:
        rounded = (value.view(torch.int32) + 0x1000) & ~0x1FFF
        return rounded.view(torch.float32)
    return value.to(torch.float8_e4m3fn).to(value.dtype)


def _swapped(value: Tensor, _: float) -> Tensor:
    return value.roll(max(1, value.shape[-1] // 4), -1)


def _shifted_mask(value: Tensor, _: float) -> Tensor:
    found = value.clone()
    found[..., -1] = 0
    return found


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
    "swapped heads": ("value", _swapped),
    "mask off by one": ("mask", _shifted_mask),
    "lower precision": ("operand", _lower_precision),
    "every third step": ("value", lambda value, _: value * 1.5),
    "stale input": ("given", lambda value, _: value),
    "baked weight": ("given", lambda value, _: value),
    "skipped buffer": ("", lambda value, _: value),
}
KINDS = (*SIZED, *STRUCTURAL)


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
        place, change = {**SIZED, **STRUCTURAL}.get(self.kind, ("", None))
        if place != site or change is None:
            return value
        if site == "given":
            return self._first(value)
        if self.kind == "every third step":
            self.calls += 1
            if self.calls % EVERY:
                return value
        made = change(value, self.size).to(value.dtype)
        self.changed |= not torch.equal(made, value)
        return made

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


def _named(node: torch.fx.Node, words: Sequence[str]) -> bool:
    name = str(getattr(node.target, "_opname", "") or node.target)
    return node.op == "call_function" and any(word in name for word in words)


def _is_float(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


def _result(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node itself, or its first tensor if it returns several."""
    if _is_float(node):
        return node
    firsts = [u for u in node.users if u.target is operator.getitem and u.args[1] == 0 and _is_float(u)]
    return firsts[0] if firsts else None


def _middle(nodes: Sequence[torch.fx.Node], words: Sequence[str]) -> torch.fx.Node | None:
    found = [r for n in nodes if _named(n, words) for r in (_result(n),) if r is not None]
    return found[len(found) // 2] if found else None


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
        made = [n for n in cast("tuple[Any, ...]", output.args[0]) if _is_float(n)]
        weights = sorted({n for n in made if n.meta["val"].dim() > 1}, key=lambda n: n.meta["val"].numel())
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
            found = _middle(nodes, words)
            if found is not None:
                through(found, site)
    graph.recompile()
    return graph


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
        buffers = list(program.module.buffers())

        def forward(*given: Any) -> tuple[Any, Any]:
            if fault.kind != "skipped buffer":
                return compiled.forward(*given)
            before = [buffer.clone() for buffer in buffers]
            made = compiled.forward(*given)
            for buffer, was in zip(buffers, before, strict=True):
                fault.changed |= not torch.equal(buffer, was)
                buffer.data.copy_(was)
            return made

        return replace(compiled, forward=forward)

    return compile


# -- cells ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One planted fault, or no fault (``kind`` is empty), and who found it."""

    model: str
    mode: str
    dtype: str
    kind: str
    size: float
    status: str
    field: bool  # found by the published rule
    found_by: str = ""
    why: str = ""  # the worst tensor, and why it fails

    @property
    def ours(self) -> bool:
        return self.status != Status.PASS.value


def cell(
    case: Case,
    dtype: str,
    sizes: Sequence[float],
    kinds: Sequence[str],
    compilers: Sequence[str] = (),
    seconds: float = math.inf,
) -> Iterator[Outcome]:
    """All faults of one model, mode and precision, after a run without a fault; then real ``compilers``.

    All share eager, fp64 and the session. No fault is planted after ``seconds`` of processor time. The faults
    are in a random order, so those of a costly model are a fair sample.
    """
    torch._dynamo.reset()  # noqa: SLF001 - the graphs of the cell before
    protocol = Protocol(threads=1, performance=False)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=tuple(compilers), protocol=protocol)
    session = Session(job, lambda _: None)
    session.open()
    for outcome in (
        *_planted(session, sizes, kinds, random.Random(job.key), seconds),
        *(_untouched(session, name) for name in compilers),
    ):
        yield replace(outcome, model=case.name, mode=case.mode.value, dtype=dtype)


def _planted(
    session: Session, sizes: Sequence[float], kinds: Sequence[str], order: random.Random, seconds: float
) -> Iterator[Outcome]:
    if not kinds:
        return
    checks, bench = session._checks, session._bench  # noqa: SLF001 - a session compiles anew for each fault
    assert checks is not None
    variant, fault = bench.variant(), Fault()
    compiled = compile_with(fault)(variant.program)
    variant.use(compiled.forward)
    bench.step(variant)
    planned = [(kind, size) for kind in kinds for size in (sizes if kind in SIZED else (1.0,))]
    order.shuffle(planned)
    start = time.process_time()
    for kind, size in [("", 0.0), *planned]:
        if kind and time.process_time() - start > seconds:
            return
        fault.plant(kind, size, variant)
        try:
            calls = checks.first_calls(variant, [])
            if kind in SIZED and not fault.changed:
                continue
            outcome = judged(checks, variant, compiled, calls)
        except Exception as error:  # a fault may make the model fail, and this is seen, too
            outcome = replace(NOTHING, status=type(error).__name__, field=True)
        if fault.changed or not kind:
            yield replace(outcome, kind=kind, size=size)


NOTHING = Outcome(model="", mode="", dtype="", kind="", size=0.0, status="", field=False)


def judged(checks: Checks, variant: Variant, compiled: Compiled, calls: FirstCalls) -> Outcome:
    """The verdicts of both rules on a variant after its first calls."""
    reference = checks.reference
    published = replace(reference, rule=replace(reference.rule, name="field"))
    made = (calls.first,) if equal(calls.first, calls.settled) else (calls.first, calls.settled)
    by_field = any(
        compare_one(name, published, results)[0].failure is not None
        for results in made
        for name in {**reference.eager, **results}
    )
    status, found, _ = checks.judge(variant, compiled, calls)
    return replace(_of(status, found), field=by_field)


def _of(status: Status, found: Parity | None) -> Outcome:
    worst = found.worst if found is not None and found.failed else None
    why = f"{worst.name}: {worst.failure}" if worst is not None else ""
    return replace(NOTHING, status=status.value, found_by=found.found_by if found else "", why=why)


def _untouched(session: Session, name: str) -> Outcome:
    """A real compiler as it is."""
    try:
        status, found, *_ = session.prepare(name)
    except JobFailed as failed:
        return replace(
            NOTHING, kind=f"untouched {name}", status=failed.status.value, why=failed.failure.message[:300]
        )
    return replace(_of(status, found), kind=f"untouched {name}")


# -- tables -------------------------------------------------------------------------------------


def tables(found: Sequence[Outcome]) -> str:
    """Markdown: found / planted by kind, size and precision; our rule, then the published one."""
    planted = [one for one in found if one.kind in KINDS]
    dtypes = [dtype for dtype in DTYPES if any(one.dtype == dtype for one in planted)]
    rows = []
    for kind in KINDS:
        for size in sorted({one.size for one in planted if one.kind == kind}):
            row = [kind, f"{size:.2%}".replace("%", " %") if kind in SIZED else ""]
            for dtype in dtypes:
                here = [o for o in planted if (o.kind, o.size, o.dtype) == (kind, size, dtype)]
                row += [_share([o.ours for o in here]), _share([o.field for o in here])]
            rows.append(row)
    headers = ["fault", "size", *(f"{dtype}{who}" for dtype in dtypes for who in ("", ", field"))]
    cells = len({(o.model, o.mode, o.dtype) for o in planted})
    alarms = Counter[tuple[str, str]]()
    for one in found:
        if one.kind not in KINDS:
            alarms[one.kind or "the graph without a fault", one.status] += 1
    rest = [(kind, status, number) for (kind, status), number in sorted(alarms.items())]
    return "\n\n".join((
        tabulate(rows, headers=headers, tablefmt="github"),
        tabulate(rest, headers=("untouched", "status", "cells"), tablefmt="github"),
        f"{len(planted)} faults in {cells} cells of {len({o.model for o in planted})} models.",
    ))  # fmt: skip


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} / {len(found)}" if found else "-"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="these models, separated by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--scale", default="tiny", choices=("tiny", "small"))
    parser.add_argument(
        "--untouched", default="aot_eager,inductor", help="real compilers; none: an empty word"
    )
    parser.add_argument("--minutes", type=float, help="begin no cell after this time")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="processor time after which a cell has no further fault",
    )
    parser.add_argument("--keep", type=Path, help="write each outcome to this file; continue where it ends")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    found = _kept(options.keep)
    done = {(one.model, one.mode, one.dtype) for one in found}
    start = time.monotonic()
    sizes = [float(size) for size in options.sizes.split(",")]
    kinds, compilers = (
        [one for one in words.split(",") if one] for words in (options.kinds, options.untouched)
    )
    for case, dtype in _cells(options):
        if (case.name, case.mode.value, dtype) in done:
            continue
        if options.minutes is not None and time.monotonic() - start > 60 * options.minutes:
            break
        begun = time.monotonic()
        try:
            here = list(cell(case, dtype, sizes, kinds, compilers, options.seconds))
        except Exception as error:  # the other cells can run
            print(f"{case.name}, {case.mode.value}, {dtype}: {error}", file=sys.stderr, flush=True)
            continue
        spent = time.monotonic() - begun
        print(
            f"{case.name}, {case.mode.value}, {dtype}: {len(here)} in {spent:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        found += here
        if options.keep is not None:
            with options.keep.open("a", encoding="utf-8") as file:
                file.writelines(
                    json.dumps({n: getattr(o, n) for n in Outcome.__slots__}) + "\n" for o in here
                )
    print(tables(found))


def _kept(path: Path | None) -> list[Outcome]:
    if path is None or not path.exists():
        return []
    return [Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _cells(options: argparse.Namespace) -> list[tuple[Case, str]]:
    """All cells, in a random order that is always the same: a part of them is a fair sample."""
    chosen = options.only.split(",") if options.only else None
    cells = []
    for suite, models in MODELS.items():
        for mode in options.modes.split(","):
            setting = Setting(mode=Mode(mode), device_type="cpu", scale=options.scale)
            for case in load_suite(suite).cases(setting):
                if case.name in (models if chosen is None else chosen):
                    cells += [(case, dtype) for dtype in options.dtypes.split(",")]
    random.Random(0).shuffle(cells)
    return cells


if __name__ == "__main__":
    main()
