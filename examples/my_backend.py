r"""Two compilers and a model: functions, which need no file in the project.

python runner.py --model=examples/my_backend.py:make --inference \\
    --compilers=examples/my_backend.py:no_dropout,examples/my_backend.py:traced,eager
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def no_dropout(graph: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Removes dropout from the graph, and runs the rest in eager."""
    for node in list(graph.graph.nodes):
        if node.target is torch.nn.functional.dropout:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


def traced(module: torch.nn.Module) -> torch.nn.Module:
    """The module that torch.fx generates."""
    return torch.fx.symbolic_trace(module)


def make() -> tuple[torch.nn.Module, torch.Tensor]:
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    return torch.nn.Sequential(*layers), torch.randn(32, 64)
