"""Judges runs of eager that are right and round differently: what fails here is a false alarm of parity.

    python benchmarks/controls.py --suites timm_models --minutes 30 --keep controls.jsonl

No compiler takes part, so every curated model can be judged in seconds. Printed are the statuses of each
control, and how often a tensor of it is further off than both noisy runs of eager on the same data: a third,
if the control were as noisy as noisy eager.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch.utils._pytree import tree_map_only

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import Outcome, models_parser, outcomes_of, why_of, words_of  # noqa: E402 - nothing is installed
from harness.parity.calls import first_calls  # noqa: E402
from harness.parity.check import Check  # noqa: E402
from harness.parity.measure import is_exact_kind  # noqa: E402
from harness.program import Compiled, forward_of  # noqa: E402
from harness.schema import Case, Job, Protocol  # noqa: E402
from harness.tensors import IMAGE_DIMENSIONS, named_tensors  # noqa: E402
from harness.timing.step import Variant  # noqa: E402
from harness.worker.session import Session  # noqa: E402

SUITES = ("tiny_gpt", "huggingface", "timm_models")


@contextmanager
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def channels_last(variant: Variant, _: Job) -> bool:
    """Weights and inputs in another memory format; False if there is no image."""
    images = _images(variant)
    variant.program.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # of torch
    for image in images:
        image.data = image.data.contiguous(memory_format=torch.channels_last)
    return bool(images)


def reversed_batch(variant: Variant, _: Job) -> bool:
    """The module gets the batch in reverse order, and its output is reversed again; False for one example."""
    program = variant.program
    given = [tensor for _, tensor in named_tensors((program.args, program.kwargs), "given") if tensor.dim()]
    count = given[0].shape[0] if given else 0

    def reversed_examples(values: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda t: t.flip(0) if t.shape[:1] == (count,) else t, values)

    def module(*args: Any, **kwargs: Any) -> Any:
        given_args, given_kwargs = reversed_examples((args, kwargs))
        return reversed_examples(program.module(*given_args, **given_kwargs))

    variant.use(forward_of(module, program.loss if program.training else None))
    return count > 1


def _images(variant: Variant) -> list[torch.Tensor]:
    given = (*variant.program.args, *variant.program.kwargs.values())
    return [each for each in given if isinstance(each, torch.Tensor) and each.dim() == IMAGE_DIMENSIONS]


CONTROLS: Mapping[str, tuple[Callable[[Variant, Job], bool], Callable[[], AbstractContextManager[Any]]]] = {
    "channels_last": (channels_last, nullcontext),
    "batch reversed": (reversed_batch, nullcontext),
    "no oneDNN": (lambda *_: True, partial(torch.backends.mkldnn.flags, enabled=False)),
    "two threads": (lambda *_: True, _two_threads),
    "attention spelled out": (  # as products and a softmax, without a fused kernel
        lambda variant, _: not _images(variant),
        partial(torch.nn.attention.sdpa_kernel, torch.nn.attention.SDPBackend.MATH),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(Outcome):
    """One control. ``above``: of ``tensors`` on two data sets, those further off than both noisy runs."""

    suite: str
    control: str
    above: int = 0
    tensors: int = 0
    sensitive: int = 0
    resolution: float | None = None  # median of the model's tensors


def outcomes(controls: Collection[str], suite: str, case: Case, dtype: str) -> Iterator[Control]:
    """Controls of one model, against one opened session."""
    protocol = Protocol(threads=1, performance=False)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=(), protocol=protocol)
    session = Session(job, lambda _: None)
    session.open()
    checks, bench = session._checks, session._bench  # noqa: SLF001 - a control is no candidate of a session
    assert checks is not None
    for name in controls:
        change, surroundings = CONTROLS[name]
        variant = bench.variant()
        if not change(variant, job):
            continue
        variant.remember()
        with surroundings():
            compiled = Compiled(forward=variant.program.forward(), region="none", compiler_calls=lambda: 1)
            check = Check(checks, variant, compiled)
            if checks.can_judge:
                check.run(first_calls(bench, variant, []))
        status, parity, _ = check.verdict()
        above, tensors = _above(check)
        facts: dict[str, Any] = {"status": status.value, "used": parity.used, "why": why_of(parity)}
        facts |= {"sensitive": len(parity.sensitive_tensors), "resolution": parity.resolution_median}
        yield Control(suite=suite, control=name, above=above, tensors=tensors, **facts)


def _above(check: Check) -> tuple[int, int]:
    sizes = []
    for judgment in check.judgments:
        truth = check.truth_of(judgment)
        draws = truth.noise.get(judgment.name, ())
        tensor = truth.eager.get(judgment.name)  # None: a weight or an input
        if judgment.call in (1, 4) and draws and tensor is not None and not is_exact_kind(tensor):
            sizes.append(judgment.error.size > max(draw.size for draw in draws))
    return sum(sizes), len(sizes)


def table(outcomes: Sequence[Control]) -> str:
    rows = []
    for control in CONTROLS:
        for dtype in sorted({outcome.dtype for outcome in outcomes}):
            here = [o for o in outcomes if (o.control, o.dtype) == (control, dtype)]
            statuses = Counter(outcome.status for outcome in here)
            tensors = sum(outcome.tensors for outcome in here)
            share = f"{sum(o.above for o in here) / tensors:.1%}" if tensors else "-"
            sensitive = sum(o.sensitive > 0 for o in here)
            words = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items()))
            rows.append((control, dtype, len(here), words, sensitive, share))
    headers = ("control", "precision", "n", "statuses", "with sensitive tensors", "beyond both noisy runs")
    return str(tabulate(rows, headers=headers, tablefmt="github"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = models_parser(__doc__, "float32")
    parser.add_argument("--suites", default=",".join(SUITES), type=words_of(SUITES))
    parser.add_argument("--controls", default=",".join(CONTROLS), type=words_of(CONTROLS))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    suites = dict.fromkeys(options.suites)
    print(table(outcomes_of(options, suites, Control, partial(outcomes, options.controls))))


if __name__ == "__main__":
    main()
