"""TorchScript on AOTAutograd's graphs, split by the min-cut partitioner, which saves less and recomputes."""

from __future__ import annotations

from torch._functorch.partitioners import min_cut_rematerialization_partition

from harness.backends.shared.aot_ts import compile_aot_ts
from harness.program import Compiled, Program


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    return compile_aot_ts(program, "aot_ts_mincut", min_cut_rematerialization_partition)
