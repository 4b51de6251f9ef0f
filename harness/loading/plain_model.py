"""Makes sure that the baseline is eager: removes ``torch.compile`` from a model, and sets its mode.

The copy that is measured is unwrapped. Compiled code that is not part of the module is found by Dynamo's
counters and by watching calls (``eager_alone``).
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.counters import graphs_compiled
from harness.failures import line_of

WRAPPER, WRAPPER_FILE = "compile_wrapper", "eval_frame.py"  # the function that torch.compile returns
INLINED_FILE = "external_utils.py"
_NO_CODE = (lambda: None).__code__
WRAPPED = "_torchdynamo_orig_callable"


OPERATORS = ("/torch/_higher_order_ops/", "/torch/nn/attention/")  # of torch, that compile by themselves
BACKWARD_FILES, STEP_FILE = ("torch/_tensor.py", "torch/autograd/__init__.py"), "harness/timing/step.py"
OF_TORCH, OWN_BACKWARD = "an operator of torch", "backward"
AFTER_BACKWARD = ("requires a gradient", "not require grad", "a second time", "that a loss could be made of")
BACKWARD_WORDS = (
    "the step does its own backward: return the loss and leave the backward to torchduet, or measure it as "
    "inference with gradients (--inference --grad; compare(): mode='inference', Protocol(grad=True)): {error}"
)


class OwnBackwardError(Exception):
    """The model computes its gradients itself, and the harness cannot."""


class AlreadyCompiledError(Exception):
    """Eager's own step runs compiled code."""


@contextmanager
def eager_alone() -> Iterator[None]:
    """``AlreadyCompiledError`` if the code inside compiles anything or runs compiled code.

    Operators of torch that compile by themselves are eager. ``OwnBackwardError`` if the code computes
    gradients itself and fails.
    """
    graphs = graphs_compiled()
    entered: list[str] = []
    try:
        with _watching_calls(entered):
            yield
    except Exception as error:
        if OWN_BACKWARD in entered and any(words in line_of(error) for words in AFTER_BACKWARD):
            raise OwnBackwardError(BACKWARD_WORDS.format(error=line_of(error))) from error
        raise
    changed = graphs_compiled() != graphs
    if WRAPPER in entered or (changed and OF_TORCH not in entered):
        raise AlreadyCompiledError(
            "eager's own step runs code that torch.compile compiles, so it is not eager: give the model "
            "and the functions that it calls without torch.compile"
        )


@contextmanager
def _watching_calls(entered: list[str]) -> Iterator[None]:
    """Notes calls of functions that ``torch.compile`` returned: no counter shows earlier compilations.

    And whether an operator of torch called one, and calls of ``backward`` that are not the harness's.
    """

    def on_call(frame: types.FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name not in (WRAPPER, "backward") or frame.f_back is None:
            return
        caller = frame.f_back.f_code.co_filename
        if code.co_name == WRAPPER and code.co_filename.endswith(WRAPPER_FILE):
            entered.append(OF_TORCH if any(part in caller for part in OPERATORS) else WRAPPER)
        elif (
            code.co_filename.endswith(BACKWARD_FILES)
            and "/torch/" not in caller
            and not caller.endswith(STEP_FILE)
        ):
            entered.append(OWN_BACKWARD)

    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        yield
    finally:
        sys.setprofile(before)


def unwrapped(module: torch.nn.Module, original: torch.nn.Module) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """``module``, a copy of ``original``, without ``torch.compile``, and the names of the compiled parts."""
    names = []
    while _is_optimized(module):
        module, original = module.get_submodule("_orig_mod"), original.get_submodule("_orig_mod")
        names = ["the model"]
    for name, part in list(module.named_modules()):
        for child, inner in list(part._modules.items()):  # noqa: SLF001 - setattr may refuse a child's name
            while inner is not None and _is_optimized(inner):
                inner = part._modules[child] = inner.get_submodule("_orig_mod")  # noqa: SLF001, PLW2901
                names.append(_joined(name, child))
    originals = {
        name.replace("_orig_mod.", "").removesuffix("._orig_mod"): part
        for name, part in original.named_modules()
    }
    for name, part in module.named_modules():
        names += [_joined(name, attribute) for attribute in _uncompile(part, module, originals)]
    for name, part in originals.items():  # a copy does not keep the effect of Module.compile()
        names += [_joined(name)] if getattr(part, "_compiled_call_impl", None) is not None else []
    return module, tuple(dict.fromkeys(names))


def _is_optimized(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def _uncompile(
    part: torch.nn.Module, root: torch.nn.Module, originals: dict[str, torch.nn.Module]
) -> list[str]:
    """Replaces the compiled functions among one module's attributes, and returns the attributes' names."""
    names = []
    for name, value in list(vars(part).items()):
        if _is_compiled(value):
            object.__setattr__(part, name, _rebound(getattr(value, WRAPPED), root, originals))
            names.append(name)
    of_class = inspect.getattr_static(type(part), "forward", None)  # not a function for scripted modules
    if "forward" not in vars(part) and _is_compiled(of_class):
        object.__setattr__(part, "forward", types.MethodType(getattr(of_class, WRAPPED), part))
        names.append("forward")
    return names


def _is_compiled(value: Any) -> bool:
    if not isinstance(value, (types.FunctionType, types.MethodType)):
        return False
    return hasattr(value, WRAPPED) and not getattr(value, "_torchdynamo_disable", False)


def _rebound(function: Any, root: torch.nn.Module, originals: dict[str, torch.nn.Module]) -> Any:
    """For a method of a part of the original, the same method of the copy's part."""
    while getattr(function, "__code__", _NO_CODE).co_filename.endswith(INLINED_FILE):
        function = function.__wrapped__  # Dynamo wraps torch's own methods once more
    owner = getattr(function, "__self__", None)
    for name, part in originals.items():
        if part is owner:
            return types.MethodType(function.__func__, root.get_submodule(name))
    return function


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name).replace("_orig_mod.", "") or "the model"


def in_mode(module: torch.nn.Module, *, training: bool) -> tuple[str, ...]:
    """Puts the model into a mode, and returns the names of the parts that stay in the other mode.

    If the model is in this mode already, its parts are not changed: a frozen normalization stays frozen.
    """
    if module.training != training:
        module.train(training)
        return ()
    others = [name for name, part in module.named_modules() if part.training != training]
    return tuple(name for name in others if not any(name.startswith(f"{above}.") for above in others))
