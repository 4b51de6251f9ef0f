"""Whether results have eager's bits."""

from __future__ import annotations

from harness.numerics.figures import distance, quantiles
from harness.parity.rule import wrong_form
from harness.tensors import Tensors


def other_bits(eager: Tensors, given: Tensors) -> str:
    """The first tensor with another bit: ``output: 31 of 4,096 elements, by up to 2 ULP``; "" if none has.

    Two NaN are equal, 0 and -0 are not.
    """
    for name in dict.fromkeys((*eager, *given)):
        ours, theirs = eager.get(name), given.get(name)
        if form := wrong_form(name, ours, theirs):
            return f"{name}: {form}"
        if ours is None or theirs is None or (known := distance(ours, theirs)).bit_equal:
            continue
        by = f", by up to {quantiles([known.ulp], [1.0])[0]:,.0f} ULP" if known.ulp.numel() else ""
        return f"{name}: {known.elements - known.equal:,} of {known.elements:,} elements{by}"
    return ""
