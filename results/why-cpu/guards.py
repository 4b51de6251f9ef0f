"""The cost of guards, beside torch's own microbenchmark: python results/why-cpu/guards.py FILE

FILE is ``benchmarks/dynamo/microbenchmarks/dynamo_guard_overhead.py`` of pytorch. ``compare`` times its model,
and torch's function its own directly afterwards, in the same process: a later model of a process has slower
guards, so each row is of a new process. Both read the CPU time of the process, which other programs on the core
do not lengthen.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import timeit
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from harness.metrics import call
from harness.schema import Extras, Protocol, Scalar
from torchduet import compare

SHAPE = Namespace(layers=36, leaves=14, weighted_leaves=11, number=200, repeat=10)  # the file's defaults
TAGS = "use_recursive_dict_tags_for_guards"  # the file's baseline is without these tags


def main(file: str) -> None:
    spec = importlib.util.spec_from_file_location("theirs", file)
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    sys.modules["theirs"] = theirs
    spec.loader.exec_module(theirs)
    theirs.timeit = Namespace(  # type: ignore[attr-defined]
        repeat=partial(timeit.repeat, timer=time.process_time),
        timeit=partial(timeit.timeit, timer=time.process_time),
    )
    times: dict[str, float] = {}
    ours = call.cost_of_call

    def both(*given: Any) -> dict[str, Scalar]:
        numbers = ours(*given)
        with torch.inference_mode(), torch._dynamo.config.patch({TAGS: False}):
            times.update(theirs._benchmark_variant(SHAPE, "baseline")["timings"])
        return numbers

    model = theirs._GuardHeavyModel(SHAPE.layers, SHAPE.leaves, SHAPE.weighted_leaves)
    with patch("time.perf_counter", time.process_time), patch.object(call, "cost_of_call", both):
        result = compare(
            model.eval().requires_grad_(False),
            torch.randn(1),
            mode="inference",
            compilers=[f"dynamo_eager[dynamo.{TAGS}=False]"],
            extras=Extras(explain=True),
            protocol=Protocol(repeat=6, threads=1, accuracy=False),
        )
    metrics = result.records[0].metrics
    pair = times["cache_hit_us"] - times["cache_hit_skip_guard_eval_us"]
    row = (times["full_guard_check_us"], metrics["guard_check_us"], pair, metrics["candidate_guards_us"])
    print("  ".join(f"{us:8.1f}" for us in row), "us: check theirs, ours; pair theirs, ours")


if __name__ == "__main__":
    main(sys.argv[1])
