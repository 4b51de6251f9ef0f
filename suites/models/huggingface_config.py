"""Configurations of transformers models: published values, smaller scales, a user's changes, dropout kept.

published --(cut to scale)--(user's changes)--> configuration --(dropout, caches)--> the model's
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from harness.loading.dropout import KEPT_DROPOUT
from suites.models.words import closest, value_of

_DEPTHS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"),
    *("num_encoder_layers", "num_decoder_layers"),
)
_INNER_WIDTHS = (
    *("intermediate_size", "moe_intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("ffn_hidden_size", "n_inner"),
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN_EXPERTS = ("num_experts_per_tok", "moe_topk", "top_k_experts")
_FRAMES = ("max_source_positions",)  # of audio, after the encoder's convolutions
_PIXELS = ("image_size",)  # along a side
_VOCABULARY = ("vocab_size",)
_MOST: Mapping[str, Mapping[tuple[str, ...], int]] = {
    "small": {_DEPTHS: 2, _EXPERTS: 16, _CHOSEN_EXPERTS: 8, _FRAMES: 128, _PIXELS: 224, _VOCABULARY: 8192},
    "tiny": {_DEPTHS: 1, _EXPERTS: 4, _CHOSEN_EXPERTS: 2, _FRAMES: 16, _PIXELS: 64, _VOCABULARY: 512}
    | {_INNER_WIDTHS: 1024},
}
"""The largest values at a scale. The depth is also that of each stage of a model that has several."""

_WIDTHS, _WIDE = ("hidden_size", "d_model", "n_embd"), 2048
_MOST_IF_WIDE = {_DEPTHS: 1, _VOCABULARY: 2048}
"""Of a model with at least so many numbers per token."""


def make_config(
    cls: Any,
    *,
    published: Mapping[str, Any],
    scale: str,
    cut: Mapping[str, Any],
    changes: tuple[str, ...],
    use_cache: bool,
) -> Any:
    """The configuration to build ``cls`` with.

    ``published`` over the class's defaults; at a smaller scale cut by rule and
    by ``cut``, which wins; ``changes`` ("key=value") over all. ``LookupError``
    for a change to a key that there is not.
    """
    make = cls.config_class
    wanted = parse_changes(changes, make(**_merge(published, {}))) if changes else {}
    given = _merge(published, wanted)
    if scale != "full":
        ruled = cut_down(make(**given).to_dict(), _MOST[scale], keep=_merge(cut, wanted))
        given = _merge(_merge(_merge(given, ruled), cut), wanted)
    config = make(**given)
    if cls.__name__.endswith("ForSequenceClassification") and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0  # else decoders refuse more than one sample
    for part in _parts(config):
        _keep_dropout(part)
        if hasattr(part, "apply_spec_augment"):
            part.apply_spec_augment = False  # random masks
        for cache in ("use_cache", "use_mems_eval", "use_mems_train"):
            if hasattr(part, cache):
                setattr(part, cache, use_cache)
    return config


def cut_down(
    values: Mapping[str, Any], limits: Mapping[tuple[str, ...], int], *, keep: Mapping[str, Any]
) -> dict[str, Any]:
    """What to change in a configuration (as plain ``values``) for a smaller scale.

    Nothing that ``keep`` names. Parts with a configuration of their own are cut the same way.
    """
    wide = _MOST_IF_WIDE if any(_number(values.get(key)) >= _WIDE for key in _WIDTHS) else {}
    most = {key: min(limit, wide.get(keys, limit)) for keys, limit in limits.items() for key in keys}
    if "depths" in values:
        most = {key: limit for key, limit in most.items() if key not in _DEPTHS}
    new: dict[str, Any] = {
        key: limit for key, limit in most.items() if key not in keep and _number(values.get(key)) > limit
    }
    depths = {values[key]: new[key] for key in _DEPTHS if key in new}
    for key, value in values.items():
        if isinstance(value, Mapping) and "model_type" in value:
            inner = cut_down(value, limits, keep=keep.get(key, {}))
            new |= {key: inner} if inner else {}
        elif isinstance(value, list | tuple) and key not in keep:
            if key == "depths":
                new[key] = [min(depth, limits[_DEPTHS]) for depth in value]
            elif len(value) in depths:
                new[key] = _one_of_each(list(value), depths[len(value)])
    if "vocab_size" in new:
        new |= _ids_within(values, new["vocab_size"], keep)
    return new


def _one_of_each(layers: list[Any], depth: int) -> list[Any]:
    """``depth`` of the layers in their order, chosen so that as many kinds as possible are among them."""
    firsts = [i for i, layer in enumerate(layers) if layer not in layers[:i]][:depth]
    others = [i for i in range(len(layers)) if i not in firsts]
    return [layers[i] for i in sorted([*firsts, *others[: depth - len(firsts)]])]


def _ids_within(values: Mapping[str, Any], vocabulary: int, keep: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that a cut vocabulary no longer has, each moved to a place of its own at its end."""
    ids = {
        key: value
        for key, value in values.items()
        if key.endswith(("_token_id", "_token_index", "suppress_tokens")) and key not in keep
    }
    flat = {i for value in ids.values() for i in (value if isinstance(value, list) else [value])}
    outside = sorted(i for i in flat if isinstance(i, int) and i >= vocabulary)
    moved = {old: vocabulary - 1 - place % vocabulary for place, old in enumerate(outside)}
    new: dict[str, Any] = {}
    for key, value in ids.items():
        if isinstance(value, list):
            new[key] = [moved.get(i, i) for i in value]
        elif value in moved:
            new[key] = moved[value]
    return new


def parse_changes(changes: tuple[str, ...], config: Any) -> dict[str, Any]:
    """The user's ``key=value`` strings as nested values; dotted keys go into sub-configurations.

    ``LookupError`` names the closest keys when ``config`` has no such key.
    """
    wanted: dict[str, Any] = {}
    for change in changes:
        dotted, equals, text = change.partition("=")
        if not equals:
            raise LookupError(f"a change to the configuration is written key=value, not {change!r}")
        part, place = config, wanted
        *outer, last = dotted.strip().split(".")
        for key in outer:
            _must_have(part, key, dotted)
            part = getattr(part, key)
            place = place.setdefault(key, {})
        _must_have(part, last, dotted)
        place[getattr(part, "attribute_map", {}).get(last, last)] = value_of(text.strip())
    return wanted


def _must_have(part: Any, key: str, dotted: str) -> None:
    if not hasattr(part, "to_dict"):
        raise LookupError(f"the configuration has no key {dotted!r}: what is before {key!r} has no keys")
    known = (*part.to_dict(), *part.attribute_map)
    if key not in known:
        raise LookupError(f"{type(part).__name__} has no key {key!r}{closest(key, known)}")


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables, merged recursively; ``over`` wins. A copy, because transformers changes its input."""
    merged = copy.deepcopy(dict(under))
    for key, high in over.items():
        low = merged.get(key)
        inner = low if isinstance(low, Mapping) else {}
        merged[key] = _merge(inner, high) if isinstance(high, Mapping) else high
    return merged


def _parts(config: Any) -> list[Any]:
    """The configuration and every one inside it."""
    inner = [value for value in vars(config).values() if hasattr(value, "to_dict") and value is not config]
    return [config, *(part for each in inner for part in _parts(each))]


def _keep_dropout(config: Any) -> None:
    """Every dropout above 0 becomes one that drops nothing; skipping layers at random is switched off."""
    for key, value in vars(config).items():
        if "drop" not in key or isinstance(value, bool):
            continue
        if "layerdrop" in key or "layer_drop" in key:
            setattr(config, key, 0.0)  # control flow: a compiler would see another model each time
        elif isinstance(value, float) and value > 0:
            setattr(config, key, KEPT_DROPOUT)
        elif isinstance(value, list | tuple):
            setattr(config, key, [KEPT_DROPOUT if _number(rate) > 0 else rate for rate in value])


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
