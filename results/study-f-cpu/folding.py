"""Inductor of torch 2.0 and 2.1 without a part of what it does to convolutions when gradients are off."""

from unittest import mock

import torch
from torch._inductor.compile_fx import compile_fx

if torch.__version__.startswith("2.0"):
    import torch._inductor.overrides as passes
else:
    import torch._inductor.fx_passes.pre_grad as passes


def without(name):
    return mock.patch.object(passes, name, lambda gm, *_, **__: gm)


def unfolded(graph, example_inputs):
    with without("fuse_conv_bn"):
        return compile_fx(graph, example_inputs)


def unfused(graph, example_inputs):
    with without("mkldnn_fuse_fx"):
        return compile_fx(graph, example_inputs)
