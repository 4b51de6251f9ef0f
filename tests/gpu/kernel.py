"""A kernel of Triton, compiled and run: what inductor needs of a card. Needs Triton to be imported."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _twice(source, target, count, size: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    places = tl.program_id(0) * size + tl.arange(0, size)
    inside = places < count
    tl.store(target + places, 2 * tl.load(source + places, mask=inside), mask=inside)


def works(place: torch.device) -> bool:
    """Whether the kernel doubles each value."""
    source = torch.arange(10_000, dtype=torch.float32, device=place)
    target = torch.empty_like(source)
    _twice[(triton.cdiv(source.numel(), BLOCK),)](source, target, source.numel(), size=BLOCK)
    return torch.equal(target, source + source)
