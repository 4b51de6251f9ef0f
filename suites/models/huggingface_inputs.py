"""Random inputs of transformers models, with the labels that their own losses need, and that loss.

The inputs follow from the model's ``main_input_name`` and the parameters of its
``forward``. The labels follow from the end of the name of its class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_DECODER_READS_TOO = ("T5", "MT5", "M2M100", "Blenderbot", "Pegasus", "Marian", "LongT5", "Switch")
"""Families that the field gives decoder_input_ids; others shift the labels."""

_SHORTEST_SOUND, _FRAME = 3200, 320
"""Numbers of a sound: the fewest of which a speech model's convolutions leave frames; those of a frame."""


def own_loss(output: Any, target: Any) -> Tensor:
    """The loss that the model returned; where there is none, a mean over the first tensor it returned.

    Not of x itself but of sqrt(1 + x^2): behind a normalization the mean of x, and of x^2, is a
    constant, and every gradient 0.
    """
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    first = output[0]
    while isinstance(first, tuple | list):
        first = first[0]
    assert isinstance(first, Tensor)
    return (1 + first.float().square()).sqrt().mean()


def inputs_for(model: Any, batch: int, sequence: int) -> dict[str, Any]:
    """Keyword arguments of ``model``, labels included. ``sequence`` counts tokens, or samples of a sound."""
    config, name = model.config, type(model).__name__
    takes = set(inspect.signature(model.forward).parameters)
    inputs = _read(model, takes, batch, sequence)
    if name.endswith("ForMultipleChoice") and "input_ids" in inputs:
        inputs["input_ids"] = torch.randint(_vocabulary(config), (batch, 2, sequence))
    labels = _labels(name, config, inputs, batch, sequence)
    inputs |= {key: value for key, value in labels.items() if key in takes}
    if config.is_encoder_decoder and "decoder_input_ids" in takes:
        starts = name.startswith(_DECODER_READS_TOO)
        if starts or "labels" not in inputs or not name.endswith("ForConditionalGeneration"):
            inputs["decoder_input_ids"] = _tokens(config, batch, sequence)
    if "return_loss" in takes and "labels" not in inputs and batch > 1:  # of one sample, this loss is 0
        inputs["return_loss"] = True
    return inputs


def _read(model: Any, takes: set[str], batch: int, sequence: int) -> dict[str, Any]:
    """The model's inputs, without labels."""
    config, name = model.config, type(model).__name__
    main = model.main_input_name
    inputs: dict[str, Any] = {}
    if main == "input_values" and hasattr(config, "num_mel_bins"):
        inputs[main] = torch.randn(batch, config.max_length, config.num_mel_bins)  # a spectrogram
    elif main == "input_values":
        inputs[main] = torch.randn(batch, max(sequence, _shortest_sound(name, config)))
    elif main == "input_features":
        inputs[main] = _sound(config, batch, sequence)
    elif main == "past_values":
        inputs[main] = torch.randn(batch, config.context_length, config.num_input_channels)
    if main == "pixel_values" or ("pixel_values" in takes and _has_vision(config)):
        inputs["pixel_values"] = _pixels(config, batch)
    if "input_ids" in takes and (main == "input_ids" or (main == "pixel_values" and _vocabulary(config))):
        tokens = _tokens(config, batch, sequence)
        if name.startswith("Roberta"):
            # Its default has positions for 511 tokens and the padding. (The field gives padding only: all
            # positions are then alike, and the gradients of a loss over positions are zero.)
            tokens[:, 0] = config.pad_token_id
        elif "Bart" in name or (config.is_encoder_decoder and name.endswith("ForSequenceClassification")):
            end = config.eos_token_id  # as the last token of each row, and nowhere else
            tokens = torch.where(tokens == end, 0 if end else 1, tokens)
            tokens[:, -1] = end
        inputs["input_ids"] = tokens
    return inputs


def _labels(name: str, config: Any, inputs: Mapping[str, Tensor], batch: int, length: int) -> dict[str, Any]:
    """Labels, by the end of the class's name."""
    if name.endswith("ForCTC"):  # far fewer symbols than frames, of which one has 320 samples
        return {"labels": torch.randint(1, config.vocab_size, (batch, max(1, length // 1600)))}
    if name.endswith("ForPrediction"):
        return {"future_values": torch.randn(batch, config.prediction_length, config.num_input_channels)}
    classes, vocabulary = max(getattr(config, "num_labels", 2), 1), _vocabulary(config)
    symbols = 2 if name.startswith("Electra") else vocabulary or 2
    sample, token = (batch,), (batch, length)
    pixel = (batch, *inputs["pixel_values"].shape[-2:]) if "pixel_values" in inputs else ()
    by_ending: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {
        "ForQuestionAnswering": {"start_positions": (length, sample), "end_positions": (length, sample)},
        "ForTokenClassification": {"labels": (classes, token)},
        "ForMultipleChoice": {"labels": (2, sample)},
        "ForNextSentencePrediction": {"labels": (2, sample)},
        "Classification": {"labels": (classes, sample)},
        "SemanticSegmentation": {"labels": (classes, pixel)},
        "ForPreTraining": {"labels": (symbols, token)}
        | dict.fromkeys(("next_sentence_label", "sentence_order_label"), (2, sample)),
        **{key: {"labels": (vocabulary, token)} for key in ("LM", "ForConditionalGeneration", "LMHeadModel")},
    }
    labels = next((labels for end, labels in by_ending.items() if name.endswith(end)), {})
    return {key: torch.randint(below, shape) for key, (below, shape) in labels.items()}


def _tokens(config: Any, batch: int, sequence: int) -> Tensor:
    return torch.randint(_vocabulary(config) or 256, (batch, sequence))


def _vocabulary(config: Any) -> int:
    return int(getattr(text_config(config), "vocab_size", 0) or getattr(config, "vocab_size", 0) or 0)


def text_config(config: Any) -> Any:
    """What the configuration says of text: the part for it, or all of it, as with old transformers (4.41)."""
    part = getattr(config, "get_text_config", None)
    return config if part is None else part()


def _sound(config: Any, batch: int, sequence: int) -> Tensor:
    """A spectrogram; Whisper takes one length only."""
    if config.model_type == "whisper":
        return torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    bins = [getattr(config, key, None) for key in ("num_mel_bins", "feature_projection_input_dim")]
    return torch.randn(batch, sequence, next((each for each in bins if each), 80))


def _shortest_sound(name: str, config: Any) -> int:
    """More for a head that tells speakers apart: it looks at frames before and behind each."""
    if not name.endswith("ForXVector"):
        return _SHORTEST_SOUND
    layers = zip(config.tdnn_kernel, config.tdnn_dilation, strict=True)
    around: int = sum((kernel - 1) * dilation for kernel, dilation in layers)
    return _SHORTEST_SOUND + _FRAME * around


def _has_vision(config: Any) -> bool:
    if hasattr(config, "image_token_id"):
        return False  # a language model that sees where its prompt says so: here it reads text
    return any(hasattr(config, key) for key in ("vision_config", "num_channels", "image_size"))


def _pixels(config: Any, batch: int) -> Tensor:
    seen = getattr(config, "vision_config", config)
    size = getattr(seen, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(batch, getattr(seen, "num_channels", 3), height, width)
