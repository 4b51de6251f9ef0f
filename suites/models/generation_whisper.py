"""Greedy transcription by Whisper, as a workload: sound is encoded once, then tokens are generated."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from harness.workload import Workload
from suites.models.generation import CachedDecoder, Greedy, Recorder, allocated, cache_library


class WhisperTranscriber(CachedDecoder):
    """``WhisperForConditionalGeneration`` with room for ``length`` tokens.

    The first call of ``forward`` gets the sound's features, too: (batch, mel bins, frames). It encodes
    them and fills the cache of the cross-attention.
    """

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        self.model: Any = model
        self.length = length
        # as in CausalDecoder
        self._takes_places = "cache_position" in inspect.signature(model.model.decoder.forward).parameters

    def make_cache(self, args: tuple[Tensor, ...]) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        layer = cache_library().StaticLayer
        start, features = args
        config = self.model.config
        one: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
        spoken = one.self_attention_cache.update = Recorder()
        heard = one.cross_attention_cache.update = Recorder()
        silence = features.new_zeros(len(start), 1, config.d_model)
        self._read(start, silence, one)
        caches = [
            allocated([layer(max_cache_len=length) for _ in range(config.decoder_layers)], recorder)
            for length, recorder in ((self.length, spoken), (config.max_source_positions, heard))
        ]
        return EncoderDecoderCache(*caches)

    def forward(self, tokens: Tensor, features: Tensor | None = None) -> Tensor:
        cache = self.cache
        if features is not None:
            return self._read(tokens, self.model.model.encoder(features).last_hidden_state, cache)
        # The decoder asks only whether there is something to attend to: what it needs of that is cached.
        return self._read(tokens, cache.cross_attention_cache.layers[0].keys, cache)

    def _read(self, tokens: Tensor, encoded: Tensor, cache: Any) -> Tensor:
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if self._takes_places:
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            options["cache_position"] = steps + cache.get_seq_length()
        read = self.model.model.decoder(input_ids=tokens, encoder_hidden_states=encoded, **options)
        logits: Tensor = self.model.proj_out(read.last_hidden_state[:, -1])
        return logits


def whisper_workload(model: nn.Module, new_tokens: int, batch_size: int) -> Workload:
    """Greedy generation by ``WhisperForConditionalGeneration`` from random features and the start token.

    ``ValueError`` if it has no room for so many tokens.
    """
    config: Any = model.config
    if new_tokens + 1 > config.max_target_positions:
        most = f"room for {config.max_target_positions} tokens"
        raise ValueError(f"{type(model).__name__} has {most}, not for {new_tokens + 1}")
    first = min(config.decoder_start_token_id, config.vocab_size - 1)  # a cut vocabulary may lack it
    start = torch.full((batch_size, 1), first)
    features = torch.randn(batch_size, config.num_mel_bins, 2 * config.max_source_positions)
    return Workload(
        module=WhisperTranscriber(model, new_tokens + 1).eval(),
        args=(start, features),
        drive=Greedy(new_tokens=new_tokens),
    )
