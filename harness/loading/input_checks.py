"""Checks of a user's loss, target, inputs and weights, with sentences on what does not fit."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.failures import is_out_of_memory
from harness.precision import Precision
from harness.tensors import named_tensors
from harness.workload import Workload

SHOWN = 3  # names in a sentence
OF_TYPES = re.compile(r"(?is)(?=.*(float|double|half|same)).*(dtype|\btypes?\b)|not implemented for '")
"""What torch's messages say about a type that does not fit another; not about an integer that overflows."""


def loss_of_two(loss: Callable[..., Any], target: Any) -> Callable[[Any, Any], Any]:
    """``loss`` as a function of (output, target). ``loss`` may also take the output alone.

    ``TypeError`` with a sentence for any other signature, and for a target that the loss does not take.
    """
    loss = getattr(loss, "_torchdynamo_orig_callable", loss)
    called = loss.forward if isinstance(loss, torch.nn.Module) else loss
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # functions written in C have no signature
        return loss
    if _takes(signature, 2) and (target is not None or not _takes(signature, 1)):
        return loss
    if not _takes(signature, 1):
        raise TypeError(f"loss: it is called as loss(output, target), but its signature is {signature}")
    if target is not None:
        raise TypeError(f"loss: a target is given, but this loss takes {signature}, the output alone")

    def of_output(output: Any, target: Any) -> Any:
        return loss(output)

    return of_output


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def why_not_trainable(workload: Workload) -> str | None:
    """A sentence if all parameters are frozen and no input requires a gradient, else None.

    None, too, for a module without parameters: it may use tensors that are not registered as parameters.
    """
    parameters = list(workload.module.parameters())
    inputs = [tensor for _, tensor in named_tensors((workload.args, dict(workload.kwargs)), "input")]
    if not parameters or any(tensor.requires_grad for tensor in (*parameters, *inputs)):
        return None
    return (
        f"nothing requires a gradient: all {len(parameters)} parameters are frozen; "
        "unfreeze what is to be trained, or measure inference"
    )


NO_GRAD = (
    "inference runs under torch.no_grad(); for a model that computes gradients, use --grad (compare(): "
    "Protocol(grad=True))"
)


def explained(error: BaseException, message: str, workload: Workload, *, training: bool = True) -> str:
    """The message of an exception of eager's step, with what explains it in the user's input."""
    own = not (getattr(workload.loss, "__module__", None) or "").startswith("harness.")
    if not isinstance(error, Exception) or is_out_of_memory(error):
        return message
    if own and workload.target is None and _in_loss(error):
        return (
            "the loss failed without a target: give one (compare(target=...), or return (module, inputs, "
            f"loss, target)), or a loss that needs none: {message}"
        )
    if isinstance(error, TypeError) and (why := _not_bound(workload)):
        return f"{why}: {message}"
    if isinstance(error, RuntimeError) and "does not require grad" in message and not training:
        return f"{NO_GRAD}: {message}"
    of_types = isinstance(error, RuntimeError) and OF_TYPES.search(message)
    types = "; ".join(_mismatches(workload)) if of_types else ""
    return f"{message} ({types})" if types else message


def _not_bound(workload: Workload) -> str:
    """Why the inputs do not fit the signature of the forward; "" if they fit."""
    try:
        signature = inspect.signature(workload.module.forward)
    except (TypeError, ValueError):
        return ""
    given, whole = f"{len(workload.args)} are given by position", "([...],)"
    if workload.kwargs:
        given = f"a mapping is given as the named ones {', '.join(map(str, workload.kwargs))}"
        whole = "({...},)"
    try:
        signature.bind(*workload.args, **workload.kwargs)
    except TypeError as error:
        fit = f"the inputs do not fit forward{signature}: {error}"
        return f"{fit}; {given}, and for one argument that is the whole, give {whole}"
    return ""


def _in_loss(error: BaseException) -> bool:
    """Whether the loss raised the exception: ``harness.program`` calls it when the output exists."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return next(
        ("output" in frame.f_locals for frame in frames if frame.f_code.co_name == "with_loss"), False
    )


def _mismatches(workload: Workload) -> Iterator[str]:
    """Sentences on inputs of a type that no parameter has. This is no error: a model may convert them."""
    own = {p.dtype for p in workload.module.parameters() if p.is_floating_point()}
    inputs = _inputs(workload)
    floating = {tensor.dtype for _, tensor in inputs if tensor.is_floating_point()}
    for name, tensor in inputs:
        if own and tensor.is_floating_point() and tensor.dtype not in own:
            yield f"{name} is {_words({tensor.dtype})} and the model's parameters are {_words(own)}"
    if own and inputs and not floating:
        kinds = {tensor.dtype for _, tensor in inputs}
        yield f"all inputs are {_words(kinds)} and the model's parameters are {_words(own)}"


def remarks(
    workload: Workload, device: torch.device, precision: Precision, *, training: bool
) -> tuple[str, ...]:
    """Sentences on differences between the user's model and the measured model.

    ``ValueError`` with a sentence for a model that cannot be measured: a tensor on the device meta, weights
    of a lower precision than the job's, or an autocast that torch turns off.
    """
    if not getattr(precision.context(device.type), "_enabled", True):  # torch to 2.2: float16 on a CPU
        raise ValueError(f"torch {torch.__version__} has no {precision.name} on {device.type}: it is float32")
    inputs = _inputs(workload)
    targets = list(named_tensors(workload.target, "target"))
    weights = [*workload.module.named_parameters(), *workload.module.named_buffers()]
    for name, tensor in (*inputs, *targets, *weights):
        if tensor.device.type == "meta":
            raise ValueError(f"{name} is on the device meta, which holds no values: nothing can be measured")
    sentences = _of_precision(workload, precision)
    for what, tensors in (("the model", weights), ("the inputs", [*inputs, *targets])):
        elsewhere = {str(t.device) for _, t in tensors if t.device.type != device.type}
        if elsewhere:
            sentences.append(f"{what} came on {', '.join(sorted(elsewhere))}, copied to {device}")
    parts = workload.module.named_modules()
    scripted = [name or "the model" for name, part in parts if isinstance(part, torch.jit.ScriptModule)]
    if scripted:
        sentences.append(f"eager runs TorchScript, and no Python, in {scripted[0]}")
    needing = [name for name, tensor in inputs if tensor.requires_grad]
    if needing and training:
        named = ", ".join(needing[:SHOWN]) + (" and others" if len(needing) > SHOWN else "")
        sentences.append(f"gradients of inputs are computed and compared, too: {named} requires one")
    sentences += [
        f"inputs: {sentence}" for sentence in _mismatches(workload) if not sentence.startswith("all")
    ]
    return tuple(sentences)


def _of_precision(workload: Workload, precision: Precision) -> list[str]:
    own = {p.dtype for p in workload.module.parameters() if p.is_floating_point()}
    if precision.cast is not None or len(own) != 1:
        return []
    (dtype,) = own
    if dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"the model's parameters are {_words(own)} and the precision is {precision.name}: ask for the "
            f"precision {_words(own)}, or give the model in float32"
        )
    if dtype is torch.float64:
        return [f"the model is float64, which {precision.name} does not cast: it is measured so"]
    return []


def _inputs(workload: Workload) -> list[tuple[str, torch.Tensor]]:
    return [*named_tensors(workload.args, "input"), *named_tensors(dict(workload.kwargs), "input")]


def _words(dtypes: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
