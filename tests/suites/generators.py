"""A suite of tiny models that generate: a language model and one that transcribes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.schema import Case, Mode, Setting
from harness.workload import Workload

if TYPE_CHECKING:
    from torch import nn

NAMES = ("llama", "gpt2", "whisper")
VOCABULARY = 97
PROMPT = 6


def cases(setting: Setting) -> tuple[Case, ...]:
    if setting.mode is not Mode.GENERATE:
        return ()
    return tuple(
        Case(
            suite=__file__,
            name=name,
            mode=Mode.GENERATE,
            batch_size=2,
            published_batch_size=2,
            scale=setting.scale,
            prompt_tokens=PROMPT,
            new_tokens=8,
        )
        for name in NAMES
    )


def build(case: Case) -> Workload:
    from suites.models.generation import causal_workload, whisper_workload

    assert case.batch_size is not None
    assert case.prompt_tokens is not None
    assert case.new_tokens is not None
    model = make_model(case.name)
    if case.name == "whisper":
        return whisper_workload(model, 1, case.new_tokens, case.batch_size)
    return causal_workload(model, case.prompt_tokens, case.new_tokens, case.batch_size, VOCABULARY)


def make_model(name: str) -> nn.Module:
    """Random weights, larger than usual: a model fresh from its initializer repeats one token."""
    import torch
    import transformers

    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    ends["tie_word_embeddings"] = False  # or what is read is what seems most likely to follow
    shape: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "max_position_embeddings": 32}
    config: Any
    model: Any
    if name == "llama":
        config = transformers.LlamaConfig(**shape, intermediate_size=48, num_key_value_heads=2, **ends)
        model = transformers.LlamaForCausalLM(config)
    elif name == "gemma2":  # every other layer sees four tokens only
        config = transformers.Gemma2Config(
            **shape, intermediate_size=48, num_key_value_heads=2, head_dim=8, sliding_window=4, **ends
        )
        model = transformers.Gemma2ForCausalLM(config)
    elif name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **ends))
    else:  # whisper
        sides: dict[str, Any] = {"decoder_layers": 2, "max_target_positions": 32}
        sides |= {"encoder_layers": 1, "max_source_positions": 12}
        for side in ("encoder", "decoder"):
            sides |= {f"{side}_attention_heads": 4, f"{side}_ffn_dim": 48}
        more: dict[str, Any] = {"d_model": 32, "num_mel_bins": 8, "decoder_start_token_id": 3, **ends}
        config = transformers.WhisperConfig(vocab_size=VOCABULARY, **sides, **more)
        model = transformers.WhisperForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8.0)
    module: nn.Module = model.eval()
    return module
