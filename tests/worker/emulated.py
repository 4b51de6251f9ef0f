"""What a card does to parity, emulated on a CPU: products in TF32, and sums in an order that no run repeats.

    python -m tests.worker.emulated tf32 [--suites=timm_models] [--minutes=30] [--keep=FILE]
    python -m tests.worker.emulated unsteady,atomics...
    python -m tests.worker.emulated tf32,unsteady faults [--only=MLP_addition] ...

Judges right candidates of the curated models (``RIGHT``: eager with another emulation) by whole sessions,
with a round after the check. With ``faults``, it runs ``benchmarks/faults.py`` instead, whose flags follow.

``tf32`` rounds the factors of each product of float32 to ten bits, half away from zero, as cuBLAS does;
``truncated`` cuts them off. ``atomics`` permutes what a card adds up with atomics: scattered additions, the
gradients of embeddings and of convolutions; ``unsteady`` also the sums of all products, fp64's too: more
than a card does, whose products repeat. ``reordered`` has the same other order in each step. Attention is
spelled out, so that its products are among them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import faults
from benchmarks.common import models_parser, outcomes_of, words_of
from harness.failures import JobFailed
from harness.program import Compiled, Program
from harness.schema import BASELINE, Case, Job, Protocol
from harness.timing.step import Step, Variant
from harness.worker.session import Session

FACTORS = {
    **dict.fromkeys(("mm", "bmm", "convolution"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), (1, 2)),
    "convolution_backward": (0, 1, 2),
}
"""Product -> the places of its factors."""
SUITES = ("tiny_gpt", "huggingface", "timm_models")
RIGHT = {
    "tf32": ("tf32", "tf32+reordered", "truncated", "float32"),
    "unsteady": ("unsteady",),
    "atomics": ("atomics",),
    "tf32,unsteady": ("tf32+unsteady",),
}
"""Emulation of eager -> those of its candidates. ``float32``: none."""


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Factors of products of float32 have ten bits of fraction. ``half``: what is added before the cut."""

    def __init__(self, half: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._half = half

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # Dynamo compiles, and the code runs inside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(args)
        for place in FACTORS.get(func.overloadpacket.__name__, ()):
            if given[place] is not None and given[place].dtype is torch.float32:
                bits = given[place].view(torch.int32)
                given[place] = ((bits + self._half) & ~0x1FFF).view(torch.float32)
        return func(*given, **(kwargs or {}))


class Unsteady(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """What is summed is in another order in each call. Its draws leave torch's generator as it is."""

    def __init__(self, generator: torch.Generator, *, products: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator, self._products = generator, products

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, list(args)
        after: Callable[[Any], Any] = lambda result: result  # noqa: E731
        if name == "convolution_backward":
            back = self._shuffle(given, ((0, 0), (1, 0)))
            after = lambda r: (None if r[0] is None else r[0].index_select(0, back), *r[1:])  # noqa: E731
        elif name == "embedding_dense_backward":
            given[0], given[1] = given[0].flatten(0, -2), given[1].flatten()
            self._shuffle(given, ((0, 0), (1, 0)))
        elif name in ("index_add", "index_add_") and given[3].dim():
            self._shuffle(given, ((2, 0), (3, given[1])))
        elif name in ("scatter_add", "scatter_add_") and given[2].dim():
            given[3] = given[3][tuple(map(slice, given[2].shape))]
            self._shuffle(given, ((2, given[1]), (3, given[1])))
        elif name in ("index_put", "index_put_") and args[3:] == (True,) and _is_plain(args[1]):
            index, values = given[1][0], given[2].expand(*given[1][0].shape, *given[0].shape[1:])
            given[1:3] = index.flatten(), values.flatten(0, index.dim() - 1)
            self._shuffle(given, ((1, 0), (2, 0)))
            given[1] = [given[1]]
        elif not self._products:
            pass
        elif name in FACTORS and name != "convolution":
            self._shuffle(given, zip(FACTORS[name], (-1, -2), strict=True))
        elif name == "convolution" and not given[6] and given[8] == 1:
            self._shuffle(given, ((0, 1), (1, 1)))
        elif name == "sum" and args[0].dim():
            self._shuffle(given, ((0, d) for d in (args[1] if len(args) > 1 and args[1] else (0,))))
        return after(func(*given, **(kwargs or {})))

    def _shuffle(self, given: list[Any], places: Any) -> torch.Tensor:
        """Puts these arguments in a new order along these dimensions; returns the way back."""
        order = torch.empty(0, dtype=torch.int64)
        for place, dim in places:
            size = given[place].shape[dim]
            if order.numel() != size:
                order = torch.randperm(size, generator=self._generator)
            given[place] = given[place].index_select(dim, order)
        return order.argsort()


def _is_plain(indices: Any) -> bool:
    return len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.int64


def modes(words: str, generator: torch.Generator) -> list[TorchDispatchMode]:
    """Those of ``tf32,unsteady``, or joined by ``+``."""
    known: dict[str, Callable[[], TorchDispatchMode]] = {
        "tf32": lambda: Rounded(0x1000),
        "truncated": lambda: Rounded(0),
        "unsteady": lambda: Unsteady(generator),
        "reordered": lambda: Unsteady(torch.Generator().manual_seed(1)),
        "atomics": lambda: Unsteady(generator, products=False),
    }
    return [known[word]() for word in words.replace("+", ",").split(",") if word in known]


@contextmanager
def emulated(words: str, others: WeakKeyDictionary[torch.nn.Module, str] | None = None) -> Iterator[None]:
    """Each step of each variant runs so; those whose module is among ``others``, as it says there."""
    generator, switching = torch.Generator().manual_seed(0), Variant._switching
    others = WeakKeyDictionary() if others is None else others

    def wrapped(variant: Variant, step: Step) -> Step:
        step = switching(variant, step)
        inside = others.get(variant.program.module, words)

        def run() -> Any:
            with ExitStack() as stack:
                for mode in modes(inside, generator):
                    stack.enter_context(mode)
                return step()

        return run

    attention = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with mock.patch.object(Variant, "_switching", wrapped), attention:
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One right candidate. ``spread``: of eager's two runs. ``changed``: what differs after the rounds."""

    suite: str
    model: str
    mode: str
    dtype: str
    candidate: str
    status: str
    spread: float = 0.0
    used: float | None = None
    why: str = ""
    changed: str = ""


def outcomes(words: str, suite: str, case: Case, dtype: str) -> Iterator[Outcome]:
    """Of one model."""
    names, others = RIGHT[words], WeakKeyDictionary[torch.nn.Module, str]()

    def compiler(name: str, program: Program) -> Compiled:
        others[program.module] = name
        return Compiled(forward=program.forward(), region="forward", compiler_calls=lambda: 1)

    protocol = Protocol(threads=1, min_sample_s=0.0)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=names, protocol=protocol)
    with emulated(words, others):
        session = Session(job, lambda _: None, compilers={name: partial(compiler, name) for name in names})
        session.open()
        verdicts = dict[str, dict[str, Any]]()
        for name in names:
            try:
                status, parity, *_ = session.prepare(name)
            except JobFailed as failed:
                verdicts[name] = {"status": failed.status.value, "why": failed.failure.message}
                continue
            assert parity is not None
            worst = parity.worst if parity.failed else None
            verdicts[name] = {"status": status.value, "spread": parity.eager_spread, "used": parity.used}
            verdicts[name] |= {"why": f"{worst.name}: {worst.failure}" if worst else parity.unjudged}
        session.warm_up()
        session.measure(1)
        changed, _, _ = session.finish()
    for name, given in verdicts.items():
        error = changed.get(BASELINE) or changed.get(name)
        words_of_error = f"{error.name}: {error.failure}" if error else ""
        yield Outcome(
            suite=suite,
            model=case.name,
            mode=case.mode.value,
            dtype=dtype,
            **{"candidate": name, "changed": words_of_error, **given},
        )


def main(words: Sequence[str]) -> None:
    torch.set_num_threads(1)
    emulation, *more = words
    if more[:1] == ["faults"]:
        with emulated(emulation):
            faults.main(more[1:])
        return
    parser = models_parser(__doc__, "tf32" if "tf32" in emulation else "float32")
    parser.add_argument("--suites", default=",".join(SUITES), type=words_of(SUITES))
    options = parser.parse_args(more)
    whole = outcomes_of(options, dict.fromkeys(options.suites), Outcome, partial(outcomes, emulation))
    for row, number in sorted(
        Counter((o.dtype, o.candidate, o.status, bool(o.changed)) for o in whole).items()
    ):
        print(number, *row[:3], "and changed in the rounds" * row[3])


if __name__ == "__main__":
    main(sys.argv[1:])
