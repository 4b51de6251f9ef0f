"""Greedy text generation with a static KV cache, as a workload.

One step reads a prompt (prefill) and then generates a fixed number of tokens, one call of the forward
each (decode); no token ends it early, so that every variant does the same work. The cache is allocated
once per copy of the model and written in place, so its tensors keep their addresses.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from harness.workload import Workload

ATTENTION = {"attention", "full_attention", "sliding_attention", "chunked_attention"}
"""The kinds of layers that have keys and values."""


class CachedDecoder(nn.Module, ABC):
    """A model of transformers with the cache of one generation, which has room for ``length`` tokens.

    ``decoder``: the part of the model that reads the tokens.
    ``forward`` reads the next tokens, (batch, n), and gives the logits of the token after them,
    (batch, vocabulary). Its first call after ``begin`` gets all of the workload's arguments.
    """

    def __init__(self, model: Any, length: int, decoder: nn.Module) -> None:
        super().__init__()
        self.model: Any = model
        self.length = length
        # Until transformers 5.0 a static cache is told where to write; a model's own guess breaks the graph.
        self._takes_places = "cache_position" in inspect.signature(decoder.forward).parameters
        # No buffers: the cache is neither a result to compare nor a state to put back.
        self.cache: Any = None

    def begin(self, *args: Tensor) -> None:
        """Empties the cache; the first time, makes it for arguments like these. Never to be compiled."""
        if self.cache is None:
            self.cache = self.make_cache(args)
        else:
            self.cache.reset()

    @abstractmethod
    def make_cache(self, args: tuple[Tensor, ...]) -> Any:
        """An empty static cache, of the types that the model computes in where it is now."""


class CausalDecoder(CachedDecoder):
    """A causal language model."""

    def __init__(self, model: nn.Module, length: int) -> None:
        super().__init__(model, length, model)
        accepted = inspect.signature(model.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._takes_positions = "position_ids" in accepted

    def make_cache(self, args: tuple[Tensor, ...]) -> Any:
        from transformers import DynamicCache

        (prompt,) = args
        cache: Any = DynamicCache()
        cache.update = Recorder()
        self.model(prompt[:, :1], past_key_values=cache, use_cache=True)
        return allocated(static_layers(self.model.config, self.length), cache.update)

    def forward(self, tokens: Tensor) -> Tensor:
        options: dict[str, Any] = dict(self._options)
        if self._takes_positions or self._takes_places:
            steps = torch.arange(tokens.shape[1], device=tokens.device) + self.cache.get_seq_length()
            if self._takes_positions:
                options["position_ids"] = steps.expand(tokens.shape)
            if self._takes_places:
                options["cache_position"] = steps
        output = self.model(tokens, past_key_values=self.cache, use_cache=True, return_dict=True, **options)
        logits: Tensor = output.logits
        return logits[:, -1]


def cache_library() -> Any:
    """transformers' module of caches. ``ImportError`` in one sentence where it is too old to have layers."""
    from transformers import __version__, cache_utils

    if not hasattr(cache_utils, "StaticSlidingWindowLayer"):
        raise ImportError(f"--generate needs transformers 4.57 or later; {__version__} is installed")
    return cache_utils


def static_layers(config: Any, length: int) -> list[Any]:
    """What a static cache of ``length`` tokens consists of. ``ValueError`` for a model that has none.

    A layer with a sliding window gets room for all tokens, too, and the model's mask limits what it sees:
    transformers' own would count tokens in a Python integer, and be compiled again as that changes.
    """
    library = cache_library()
    whole, sliding = library.StaticLayer, library.StaticSlidingWindowLayer
    kept = (whole, getattr(library, "DummyLayer", whole))  # the second is for layers without keys; not in 5.0
    kinds = getattr(config, "layers_block_type", None) or getattr(config, "layer_types", None) or ()
    if not hasattr(library, "DummyLayer") and not {*kinds} <= ATTENTION:  # 5.0 makes attention layers of all
        raise ValueError(f"{config.model_type} has no static KV cache")
    try:
        layers = library.StaticCache(config=config, max_cache_len=length).layers
    except Exception as error:  # each family of models without attention layers fails in its own way
        raise ValueError(f"{config.model_type} has no static KV cache") from error
    if not {*map(type, layers)} <= {*kept, sliding}:
        raise ValueError(f"{config.model_type} has no static KV cache")
    return [whole(max_cache_len=length) if type(layer) is sliding else layer for layer in layers]


class Recorder:
    """Replaces ``update`` of an empty cache, and keeps the keys and values of each layer."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.seen[layer] = (keys, values)
        return keys, values


def allocated(layers: list[Any], recorder: Recorder) -> Any:
    """A cache of ``layers`` with tensors for keys and values like those recorded.

    They are allocated here, because the first call may be compiled, and a compiler needs tensors with
    constant addresses.
    """
    from torch._dynamo import mark_static_address
    from transformers import Cache

    for index, (keys, values) in recorder.seen.items():
        layer = layers[index]
        if "value_states" in inspect.signature(layer.lazy_initialization).parameters:
            layer.lazy_initialization(keys, values)
        else:  # transformers 4 makes values like the keys
            layer.lazy_initialization(keys)
        shape = (*layer.values.shape[:-1], values.shape[-1])
        # as under autocast, where rotating widens the keys alone
        if values.dtype != layer.values.dtype or shape != tuple(layer.values.shape):
            layer.values = values.new_zeros(shape)
            mark_static_address(layer.values)
    return Cache(layers=layers)


def greedy(
    new_tokens: int,
    call: Callable[..., Any],
    module: nn.Module,
    args: tuple[Any, ...],
    lap: Callable[[], None],
    forced: Tensor | None,
) -> Mapping[str, Tensor]:
    """The generation loop: at each step, the most likely token (or the forced one) is the next input."""
    assert isinstance(module, CachedDecoder)
    module.begin(*args)
    chosen: list[Tensor] = []
    kept: dict[str, Tensor] = {}
    given = args
    for step in range(1, new_tokens + 1):
        logits = call(*given)
        choice = logits.argmax(dim=-1, keepdim=True)  # (batch, 1)
        if step == 1:
            lap()
        chosen.append(choice)
        if step & (step - 1) == 0 or step == new_tokens:
            kept[f"logits.{step}"] = logits.clone()  # a compiled forward may reuse its output's memory
        del logits
        # contiguous: other strides than the choice's would have the forward compiled again
        following = (
            choice
            if forced is None
            else forced[:, step - 1 : step].clone(memory_format=torch.contiguous_format)
        )
        given = (following,)
    return {"tokens": torch.cat(chosen, dim=1), **kept}


def _workload(decoder: CachedDecoder, most: int | None, new_tokens: int, *args: Tensor) -> Workload:
    """Greedy generation. ``most``: the tokens that the model has room for. ``ValueError`` for more."""
    length = decoder.length
    if most is not None and length > most:
        raise ValueError(f"{type(decoder.model).__name__} has room for {most} tokens, not for {length}")
    return Workload(module=decoder.eval(), args=args, drive=partial(greedy, new_tokens))


def causal_workload(
    model: nn.Module, prompt_tokens: int, new_tokens: int, batch_size: int, vocab_size: int
) -> Workload:
    """Greedy generation by a causal language model of transformers, from a prompt of random tokens.

    ``ValueError`` if it has no static KV cache (a state-space model), or no room for so many tokens.
    """
    length = prompt_tokens + new_tokens
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise ValueError(f"{type(model).__name__} has no static KV cache")
    static_layers(model.config, length)
    most = getattr(model.config, "max_position_embeddings", None)
    prompt = torch.randint(vocab_size, (batch_size, prompt_tokens))
    return _workload(CausalDecoder(model, length), most, new_tokens, prompt)


# -- transcription by Whisper: sound is encoded once, then tokens are generated ----------------


class WhisperTranscriber(CachedDecoder):
    """``WhisperForConditionalGeneration``.

    The first call of ``forward`` gets the sound's features, too: (batch, mel bins, frames). It encodes
    them and fills the cache of the cross-attention.
    """

    def __init__(self, model: Any, length: int) -> None:
        super().__init__(model, length, model.model.decoder)

    def make_cache(self, args: tuple[Tensor, ...]) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        layer = cache_library().StaticLayer
        start, features = args
        config = self.model.config
        pair: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
        spoken = pair.self_attention_cache.update = Recorder()
        heard = pair.cross_attention_cache.update = Recorder()
        silence = features.new_zeros(len(start), 1, config.d_model)
        self._read(start, silence, pair)
        caches = [
            allocated([layer(max_cache_len=length) for _ in range(config.decoder_layers)], recorder)
            for length, recorder in ((self.length, spoken), (config.max_source_positions, heard))
        ]
        return EncoderDecoderCache(*caches)

    def forward(self, tokens: Tensor, features: Tensor | None = None) -> Tensor:
        cache = self.cache
        if features is not None:
            return self._read(tokens, self.model.model.encoder(features).last_hidden_state, cache)
        # The decoder only asks whether there are encoder states; their keys and values are cached.
        return self._read(tokens, cache.cross_attention_cache.layers[0].keys, cache)

    def _read(self, tokens: Tensor, encoded: Tensor, cache: Any) -> Tensor:
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if self._takes_places:
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            options["cache_position"] = steps + cache.get_seq_length()
        read = self.model.model.decoder(input_ids=tokens, encoder_hidden_states=encoded, **options)
        logits: Tensor = self.model.proj_out(read.last_hidden_state[:, -1])
        return logits


def whisper_workload(model: nn.Module, prompt_tokens: int, new_tokens: int, batch_size: int) -> Workload:
    """Greedy generation by ``WhisperForConditionalGeneration`` from random features and start tokens.

    ``ValueError`` if it has no room for so many tokens.
    """
    config: Any = model.config
    first = min(config.decoder_start_token_id, config.vocab_size - 1)  # a cut vocabulary may lack it
    start = torch.full((batch_size, prompt_tokens), first)
    features = torch.randn(batch_size, config.num_mel_bins, 2 * config.max_source_positions)
    decoder = WhisperTranscriber(model, prompt_tokens + new_tokens)
    return _workload(decoder, config.max_target_positions, new_tokens, start, features)
