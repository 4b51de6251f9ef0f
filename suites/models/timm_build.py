"""Which names timm can build, and one of its models: arguments, dropout that drops nothing, targets.

timm has no common signature. An entry point passes its keywords to a class of
its family, which may or may not accept them. The keywords of ``OPTIONAL`` are
therefore tried, and dropped where the class refuses them.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from harness.loading.dropout import KEPT_DROPOUT, neutralize
from suites.models.words import closest, fitting, value_of

OPTIONAL = {"drop_rate": 0.0, "drop_path_rate": 0.0}
"""No dropout, and no path dropped: with either, no two runs of a step could be compared."""

_REFUSAL = re.compile(r"(?:unexpected keyword argument|multiple values for keyword argument)(.*)")
_QUOTED = re.compile(r"'(\w+)'")


def parse_config(config: Iterable[str]) -> dict[str, Any]:
    """``("depth=2", "act_layer=gelu")`` as keywords."""
    parsed: dict[str, Any] = {}
    for text in config:
        key, separator, value = text.partition("=")
        if not separator or not key.strip().isidentifier():
            raise LookupError(f"{text!r} is not of the form key=value")
        parsed[key.strip()] = value_of(value.strip())
    return parsed


def make_model(
    architecture: str, keywords: Mapping[str, Any], *, resolution: int | None = None, pretrained: bool = False
) -> nn.Module:
    """The model with random weights, or the published ones. ``LookupError`` if it takes no such keyword.

    ``resolution`` is passed on to those that are built for one (``img_size``).
    """
    keywords = {key: _kept_dropout(key, value) for key, value in keywords.items()}
    optional = dict(OPTIONAL)
    if resolution is not None:
        optional["img_size"] = resolution
    optional = {key: value for key, value in optional.items() if key not in keywords}
    before = torch.random.get_rng_state()
    while True:
        try:
            model = _create(architecture, {**optional, **keywords}, pretrained=pretrained)
        except TypeError as error:
            refusal = _REFUSAL.search(str(error))  # Python names one keyword, timm all
            refused = set(_QUOTED.findall(refusal[1])) if refusal else set()
            for key in refused:
                if key in keywords:
                    raise LookupError(_no_such_key(architecture, key)) from error
            if not refused & set(optional):
                raise
            optional = {key: value for key, value in optional.items() if key not in refused}
            torch.random.set_rng_state(before)  # a refusal may come after weights were drawn
        else:
            neutralize(model)  # what no keyword reaches
            return model


def _create(architecture: str, keywords: Mapping[str, Any], *, pretrained: bool) -> nn.Module:
    import timm

    try:
        model: nn.Module = timm.create_model(architecture, pretrained=pretrained, **keywords)
    except Exception as error:
        if not pretrained or isinstance(error, TypeError):
            raise  # TypeError: a refused keyword, found before anything is loaded
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RuntimeError(
            f"--pretrained: cannot load the weights of {architecture} (no network?): {reason}"
        ) from error
    return model


def _kept_dropout(key: str, value: Any) -> Any:
    """Replaces a dropout rate above 0 by ``KEPT_DROPOUT``, before any layer reads it."""
    is_rate = "drop" in key and isinstance(value, (int, float)) and not isinstance(value, bool)
    return KEPT_DROPOUT if is_rate and value > 0 else value


def _no_such_key(architecture: str, key: str) -> str:
    with torch.device("meta"):
        known = constructor_keys(type(make_model(architecture, {})))
    if key in known:
        return f"{architecture} sets {key!r} itself, it cannot be changed"
    return f"{architecture} takes no {key!r}{closest(key, known)}"


def constructor_keys(model_class: type) -> set[str]:
    """The keywords of a model's class, with the fields of a configuration object it may take."""
    keys: set[str] = set()
    for ancestor in model_class.__mro__:
        if ancestor in (nn.Module, object) or "__init__" not in vars(ancestor):
            continue
        for name, parameter in inspect.signature(ancestor).parameters.items():
            if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
                continue
            keys.add(name)
            if inspect.isclass(parameter.annotation) and dataclasses.is_dataclass(parameter.annotation):
                keys.update(field.name for field in dataclasses.fields(parameter.annotation))
    return keys


def class_loss(output: Any, target: Tensor) -> Tensor:
    """Cross-entropy; the mean of it over the heads of a model that has several."""
    if isinstance(output, Tensor):
        return nn.functional.cross_entropy(output, target)
    losses = [nn.functional.cross_entropy(head, target) for head in output]
    return torch.stack(losses).mean()


# -- names: architectures, with or without the tag of published weights ------------------------


def matching_names(pattern: str) -> tuple[str, ...]:
    """The names that ``pattern``, a name or a glob, stands for. ``LookupError`` if there is none."""
    from timm.models import get_deprecated_models, list_models

    names = fitting(pattern, list_models(include_tags="." in pattern))
    if names is not None and not names:
        text = "".join(letter for letter in pattern if letter not in "*?[]!")
        raise LookupError(f"timm has no model whose name fits {pattern!r}{closest(text, list_models())}")
    if names:
        return names
    renamed = get_deprecated_models()
    if pattern in renamed:
        if renamed[pattern] is None:
            raise LookupError(f"timm has removed the model {pattern!r} and names nothing in its place")
        return (pattern,)
    if pattern in list_models() or pattern in list_models(include_tags=True):
        return (pattern,)
    architecture, _, tag = pattern.partition(".")
    if tag and architecture in list_models():
        tagged = [name for name in list_models(architecture + "*", include_tags=True) if name != architecture]
        tags = [name for name in tagged if name.startswith(architecture + ".")]
        raise LookupError(f"timm has no weights {pattern!r}; it has: {', '.join(tags) or 'none'}")
    raise LookupError(f"timm has no model {pattern!r}{closest(pattern, list_models())}")
