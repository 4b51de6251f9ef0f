"""Compilers that differ by arguments alone. Each row is one, like a file of ``harness/backends``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """``made_by`` is a file of ``shared``: its ``compile_as(program, name, **arguments)`` compiles.

    The file may also have ``why_unavailable`` and ``MODES``, as a compiler's file.
    """

    name: str
    made_by: str
    about: str
    arguments: Mapping[str, Any]


def _row(name: str, made_by: str, about: str, **arguments: Any) -> Preset:
    return Preset(name, made_by, about, arguments)


ROWS = (
    _row("inductor", "inductor", "torch.compile's default backend in its default mode."),
    _row(
        "inductor_reduce_overhead",
        "inductor",
        'inductor with CUDA graphs (mode "reduce-overhead").',
        mode="reduce-overhead",
    ),
    _row(
        "inductor_max_autotune",
        "inductor",
        'inductor, its kernels chosen by measurement, with CUDA graphs (mode "max-autotune").',
        mode="max-autotune",
    ),
    _row(
        "inductor_max_autotune_no_cudagraphs",
        "inductor",
        "inductor, its kernels chosen by measurement, without CUDA graphs.",
        mode="max-autotune-no-cudagraphs",
    ),
    _row(
        "inductor_no_cudagraphs",
        "inductor",
        "inductor with CUDA graphs switched off, whatever the configuration's default is.",
        settings=MappingProxyType({"triton.cudagraphs": False}),
    ),
    _row(
        "dynamo_eager",
        "dynamo",
        "Dynamo's capture alone: its graphs run by eager kernels, without AOTAutograd.",
        backend="eager",
    ),
    _row(
        "aot_eager",
        "dynamo",
        "Graphs of Dynamo and AOTAutograd, run by eager kernels: the cost and parity of capture alone.",
        backend="aot_eager",
    ),
    _row(
        "aot_eager_decomp_partition",
        "dynamo",
        "As aot_eager, with inductor's decompositions and min-cut partitioner: inductor without its kernels.",
        backend="aot_eager_decomp_partition",
    ),
    _row(
        "dynamo_ts",
        "graph_ts",
        "TorchScript on the graphs that Dynamo captured, with TorchScript's own autodiff.",
        partitioner="none",
    ),
    _row(
        "aot_ts",
        "graph_ts",
        "TorchScript on AOTAutograd's forward and backward graphs, split by its default partitioner.",
        partitioner="default",
    ),
    _row(
        "aot_ts_mincut",
        "graph_ts",
        "TorchScript on AOTAutograd's graphs, split by the min-cut partitioner: saves less, recomputes more.",
        partitioner="min_cut",
    ),
    _row(
        "torchao_int8_dynamic",
        "torchao",
        "torchao: weights and activations as int8, then inductor. Approximate; inference only.",
        config="Int8DynamicActivationInt8WeightConfig",
    ),
    _row(
        "torchao_int8_weight_only",
        "torchao",
        "torchao: weights as int8, then inductor. Approximate; inference only.",
        config="Int8WeightOnlyConfig",
    ),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: row for row in ROWS})
