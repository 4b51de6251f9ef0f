"""Single operations: the limits of the hardware, and the share that eager and compiled code reach.

Matrix products over sizes, views beside copies, elementwise operations, reductions, softmax, norms,
attention, rotary embedding, SwiGLU, cross-entropy, embedding, convolution. ``ops.toml`` beside this file
holds their sizes. Several precisions in one run show the gain of each:

    python suites/ops.py --inference --dtypes=float32,bfloat16 --compilers=inductor

A step of inference is the forward. A step of training also computes the gradients of all floating inputs
and weights, from a random gradient of the output; views, copies and quantized weights have none. A view
moves no data, so its time is the cost of a call.
"""

from __future__ import annotations

import functools
import importlib.util

if __name__ == "__main__":  # here, because a script in suites/ cannot see what is imported next
    importlib.import_module("_direct").run(__file__)

from harness.schema import Case, Mode, Setting
from harness.workload import Workload
from suites.models.entries import entries_of

OPERATION = "operation"
"""Tag of every case: reports show the rates of an operation, and draw its roofline."""


entries = functools.partial(entries_of, __file__)


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every operation, in training those that train; the batch size is the first of its sizes."""
    if setting.mode is Mode.GENERATE:
        return ()
    return tuple(
        Case(
            suite="ops",
            name=name,
            mode=setting.mode,
            batch_size=entry.sizes[setting.scale][0],
            published_batch_size=entry.sizes["full"][0],
            scale=setting.scale,
            tags=(OPERATION, *entry.tags, *(() if setting.scale == "full" else entry.cpu_tags)),
            skip=_why_not(entry.package),
        )
        for name, entry in entries().items()
        if setting.mode is Mode.INFERENCE or (entry.shares is None and not entry.package)
    )


def _why_not(package: str) -> str:
    if not package or importlib.util.find_spec(package):
        return ""
    return f"needs the package {package}, which is not installed: pip install {package}"


def build(case: Case) -> Workload:
    """The operation with random inputs. ``ValueError`` where a view copies, or a copy does not."""
    import torch

    from suites.models.operations import make_operation, weighted_sum

    if case.config or case.pretrained:
        raise LookupError("--model-config and --pretrained: the operations of ops have sizes, and no weights")
    entry = entries()[case.name]
    sizes = (case.batch, *entry.sizes[case.scale][1:])
    module, inputs = make_operation(entry.operation or case.name, sizes, shares=entry.shares)
    if case.mode is Mode.INFERENCE:
        return Workload(module=module, args=inputs)
    with torch.no_grad():
        target = torch.randn_like(module(*inputs))
    inputs = tuple(x.requires_grad_() if x.is_floating_point() else x for x in inputs)
    return Workload(module=module, args=inputs, target=target, loss=weighted_sum)
