"""Models of transformers: the field's list, a set of current ones, and any other by its class name.

``huggingface.toml`` beside this file holds them as data. Weights and inputs are
random, so nothing is downloaded unless published weights are asked for.

    python suites/huggingface.py --training -dcpu --scale small --only BertForMaskedLM --inductor
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

if __name__ == "__main__":  # here, because a script in suites/ cannot see what is imported next
    importlib.import_module("_direct").run(__file__)

from harness.schema import NEW_TOKENS, PROMPT_TOKENS, Case, Mode, Setting
from harness.workload import Workload
from suites.models.entries import Entry, entries_of

LARGE = 3_000_000_000
"""Trainable parameters above which a full model is planned only when named: 12 GB in float32, once."""

UNNAMED_SEQUENCE = 128
"""Tokens read by a model that has no entry: the field's length for the same."""

CUTS: Mapping[str, Mapping[str, int]] = {
    "full": {},
    "small": {"batch": 2, "sequence": 64},
    "tiny": {"batch": 1, "sequence": 16},
}
"""The rule: at most so much of what is published, unless an entry has numbers of its own."""
entries = functools.partial(entries_of, __file__, tags=("field",))


def cut(entry: Entry, scale: str) -> Mapping[str, Any]:
    """What to change at ``scale``; where the entry does not say it, by the rule."""
    own = {"small": entry.small, "tiny": entry.tiny}.get(scale, {})
    return {**CUTS[scale], **own}


def batch(entry: Entry, scale: str) -> int:
    """Samples in a step at ``scale``."""
    most: int = cut(entry, scale).get("batch", entry.published_batch)
    return min(entry.published_batch, most)


def length(entry: Entry, scale: str) -> int | None:
    """Tokens (audio: numbers) in a sample at ``scale``; None where the configuration alone says it."""
    if entry.sequence is None:
        return None
    most: int = cut(entry, scale).get("sequence", entry.sequence)
    return min(entry.sequence, most)


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every case in ``setting``; for generation, those that can."""
    return tuple(
        case_for(name, setting)
        for name, entry in entries().items()
        if setting.mode is not Mode.GENERATE or "generate" in entry.tags
    )


def case_for(name: str, setting: Setting) -> Case:
    """The case of a listed name, or of a class that ``find`` gave: its own defaults, one sample."""
    listed = entries().get(name)
    entry, mode = listed or _unnamed(name), setting.mode.value
    generates = setting.mode is Mode.GENERATE
    large = setting.scale == "full" and entry.parameters > LARGE
    prompt, new = entry.prompt_tokens or PROMPT_TOKENS["full"], entry.new_tokens or NEW_TOKENS["full"]
    return Case(
        suite="huggingface",
        name=name,
        mode=setting.mode,
        batch_size=1 if generates else batch(entry, setting.scale),
        published_batch_size=None if listed is None else 1 if generates else entry.published_batch,
        scale=setting.scale,
        tags=tuple(dict.fromkeys((*entry.tags, "on_request"))) if large else entry.tags,
        tolerance=entry.tolerance.get(f"{mode}_{setting.device_type}", entry.tolerance.get(mode)),
        skip=f"gone: {entry.gone}" if entry.gone else "",
        prompt_tokens=min(prompt, PROMPT_TOKENS[setting.scale]) if generates else None,
        new_tokens=min(new, NEW_TOKENS[setting.scale]) if generates else None,
        sequence=None if generates else length(entry, setting.scale),
        parameters=entry.parameters_at(setting.scale),
    )


def find(pattern: str) -> tuple[str, ...]:
    """Model classes of the installed transformers, by name or glob. ``LookupError`` says why none."""
    from suites.models.huggingface_names import model_class, model_class_names
    from suites.models.words import fitting

    fits = fitting(pattern, model_class_names())
    if fits is None:
        model_class(pattern)
    elif not fits:
        raise LookupError(f"no model class of transformers fits {pattern!r}")
    return fits or (pattern,)


def build(case: Case) -> Workload:
    """The model of ``case``, and random inputs with the labels that its own loss needs."""
    from suites.models.huggingface_config import make_config
    from suites.models.huggingface_inputs import inputs_for, own_loss
    from suites.models.huggingface_names import model_class

    name, scale = case.name, case.scale
    entry = entries().get(name) or _unnamed(name)
    if entry.gone:
        raise LookupError(f"gone: {entry.gone}")
    cls = model_class(entry.model_class or name)
    generates = case.mode is Mode.GENERATE
    config = make_config(
        cls,
        published=entry.config,
        scale=scale,
        cut=cut(entry, scale).get("config", {}),
        changes=case.config,
        use_cache=generates,
    )
    model = _load(cls, config, entry, case) if case.pretrained else cls(config)
    if generates:
        return _generation(model, case)
    sequence = case.sequence or length(entry, scale) or UNNAMED_SEQUENCE
    return Workload(module=model, kwargs=inputs_for(model, case.batch, sequence), loss=own_loss)


def _generation(model: Any, case: Case) -> Workload:
    """The workload of text generation, or of speech transcription."""
    from suites.models.generation import causal_workload, whisper_workload
    from suites.models.huggingface_inputs import text_config

    prompt, new = case.prompt_tokens, case.new_tokens
    assert prompt is not None and new is not None  # noqa: PT018 - cases of generation have both
    if model.config.model_type == "whisper":
        return whisper_workload(model, prompt, new, case.batch)
    return causal_workload(model, prompt, new, case.batch, text_config(model.config).vocab_size)


def _unnamed(name: str) -> Entry:
    """The entry of a class that the file does not list: the class's defaults."""
    prompt = 4 if name == "WhisperForConditionalGeneration" else None  # it has room for 448 tokens
    return Entry(sequence=UNNAMED_SEQUENCE, prompt_tokens=prompt)


def _load(cls: Any, config: Any, entry: Entry, case: Case) -> Any:
    """The model with published weights. ``ValueError`` or ``OSError`` in one sentence if it cannot be had."""
    import torch

    if entry.checkpoint is None:
        raise ValueError(f"--pretrained: no published weights are known for {case.name}")
    if case.scale != "full":
        raise ValueError(f"--pretrained: published weights fit {case.name} at full scale only")
    dtype = "dtype" if hasattr(config, "dtype") else "torch_dtype"  # before transformers 4.56
    try:
        return cls.from_pretrained(entry.checkpoint, config=config, **{dtype: torch.float32})
    except OSError as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise OSError(f"--pretrained: cannot load {entry.checkpoint} (no network?): {reason}") from error


def warm(name: str) -> None:
    """Imports what the case's ``build`` imports, for a host that forks workers."""
    from suites.models import huggingface_config, huggingface_inputs  # noqa: F401
    from suites.models.huggingface_names import model_class

    model_class((entries().get(name) or _unnamed(name)).model_class or name)
