"""Translates the user's options for each compiler, with a note on each unsupported option."""

from __future__ import annotations

import ast
import difflib
import importlib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import torch

from harness.program import Program
from harness.schema import CompilerOptions
from harness.settings import ROW, choice
from harness.tensors import named_tensors

DYNAMO = ("dynamic_shapes", "dynamic_batch", "nopython", "whole_step")
"""The options that every ``torch.compile`` backend takes."""

ELSEWHERE = ("cpp",), ("triton", "eager_numerics")
"""Parts of inductor's configuration that code for an accelerator does not read, and for a CPU."""

_FLAGS = {
    option.name: " or ".join(flag.long for flag in option.metadata[ROW].flags)
    for option in fields(CompilerOptions)
    if ROW in option.metadata
}


def notes_on(name: str, options: CompilerOptions, takes: Iterable[str]) -> tuple[str, ...]:
    """One note for each given option that this compiler does not support."""
    takes = tuple(takes)
    return tuple(
        f"{name}: {flag} was not used, because this compiler does not support it"
        for option, flag in _FLAGS.items()
        if getattr(options, option) and option not in takes
    )


def settings_of_mode(mode: str) -> dict[str, Any]:
    """inductor's settings in this mode. ``ValueError`` if this torch has no such mode."""
    inductor: Any = importlib.import_module("torch._inductor")
    modes: dict[str, dict[str, Any]]
    if hasattr(inductor, "list_mode_options"):
        modes = inductor.list_mode_options()
    else:  # torch 2.0 has these modes, and no list of them
        of: Any = torch._TorchCompileInductorWrapper
        modes = {name: of(name, None, None).config for name in ("default", "reduce-overhead", "max-autotune")}
    return modes[choice("mode", modes).read(mode)]


def inductor_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``("max_autotune=true",)`` as a dictionary for ``torch.compile(options=...)``.

    Raises ``ValueError`` for an unknown key or an invalid value.
    """
    return settings_of(pairs, "torch._inductor.config", "inductor")


def what_became_of(wanted: Mapping[str, Any], known: Mapping[str, Any], device: str) -> str:
    """``sets a=1, b=2; without effect on cpu: c=3; not in this torch: d``: a group for each setting."""
    foreign = ELSEWHERE[device == "cpu"]
    groups: dict[str, list[str]] = {"sets": [], f"without effect on {device}:": [], "not in this torch:": []}
    for key, value in wanted.items():
        place = 2 if key not in known else 1 if key.partition(".")[0] in foreign else 0
        [*groups.values()][place].append(key if place == 2 else f"{key}={value}")
    return "; ".join(f"{words} {', '.join(keys)}" for words, keys in groups.items() if keys)


def settings_of(pairs: Iterable[str], module: str, owner: str = "") -> dict[str, Any]:
    """The same for the configuration in this module of torch. ``owner``: its name in messages."""
    pairs = tuple(pairs)
    if not pairs:
        return {}
    config: Any = importlib.import_module(module)
    # torch 2.0 has no get_config_copy. Before torch 2.6, without get_type, a value keeps the type it has
    known = config.get_config_copy() if hasattr(config, "get_config_copy") else config.to_dict()
    kind_of = getattr(config, "get_type", lambda key: type(known[key]))
    owner = owner or module
    settings = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
            close += [k for k in sorted(known) if key.lower() in k.lower() and k not in close]
            hint = f"; the closest are {', '.join(close[:3])}" if close else ""
            raise ValueError(f"{owner} has no setting called {key!r}{hint}")
        settings[key] = _value(f"{owner}'s {key}", text, kind_of(key), known[key])
    return settings


def _value(key: str, text: str, kind: Any, now: Any) -> Any:
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    word = text.strip().lower()
    if bool in kinds and word in ("true", "false", "1", "0"):
        return word in ("true", "1")
    if word == "none" and (types.NoneType in kinds or now is None):
        return None
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    if str in kinds:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    # to Python 3.10, list[str] is a class; isinstance() takes neither it nor Any
    plain = tuple(k for k in kinds if isinstance(k, type) and k is not Any and not typing.get_origin(k))
    if len(plain) == len(kinds) and not isinstance(value, plain):
        words: dict[type, str] = {bool: "true or false", types.NoneType: "none"}
        names = " or ".join(words.get(k, k.__name__) for k in plain)
        raise ValueError(f"{key} takes {names}, not {text!r} (now: {now!r})")
    return value


def mark_dynamic_batch(program: Program) -> str | None:
    """Marks the batch as dynamic for Dynamo; returns a note if this is impossible.

    The batch is the first size of the first input, also in other inputs and targets.
    """
    given = named_tensors((program.args, dict(program.kwargs), program.target), "given")
    tensors = [tensor for _, tensor in given if tensor.dim()]
    if not tensors or tensors[0].shape[0] < 2:
        return "--dynamic-batch-only was not used: torch specializes on a batch of one"
    for tensor in tensors:
        if tensor.shape[0] == tensors[0].shape[0]:
            torch._dynamo.mark_dynamic(tensor, 0)
    return None


def device_of(program: Program) -> torch.device:
    """The device of the weights or, without weights, of the inputs."""
    named = named_tensors((program.args, dict(program.kwargs)), "input")
    tensors = [*program.module.parameters(), *(tensor for _, tensor in named)]
    return tensors[0].device if tensors else torch.device("cpu")
