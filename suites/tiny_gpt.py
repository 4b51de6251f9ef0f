"""Small language models: four implementations, on addition and on the characters of Shakespeare.

The shapes are those of a study that trained each of the four on both tasks;
``tiny_gpt.toml`` beside this file holds them, line by line with their source.
Here they are timed on random symbols, because the cost of a step does not depend on the text. The training
runs of ``--trajectory`` have additions, which can be learned.

    python suites/tiny_gpt.py --training --bfloat16 -dcpu --inductor --only NanoGPT_addition -n30
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # here, because a script in suites/ cannot see what is imported next
    importlib.import_module("_direct").run(__file__)

from harness.loading.dropout import KEPT_DROPOUT
from harness.schema import PUBLISHED_MODEL, Case, Mode, Setting
from harness.workload import Workload
from suites.models.entries import Entry, entries_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


IMPLEMENTATIONS = {
    "HuggingFaceGPT": "next_symbol",
    "MLP": "next_symbol",
    "NanoGPT": "nano_gpt",
    "TLTransformer": "tl_transformer",
}
"""Class -> its file in ``models``."""


entries = functools.partial(entries_of, __file__, source="the study")
TINY_BATCH = 2


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every case that can be trained or run; the shapes are the same at every scale.

    "small" reduces batches so that two cores need well under a second for a step; "tiny" takes two sequences.
    """
    if setting.mode is Mode.GENERATE:
        return ()  # these read a window of fixed length and keep no cache
    full = setting.scale == "full"
    return tuple(
        Case(
            suite="tiny_gpt",
            name=name,
            mode=setting.mode,
            batch_size=_batch(entry, setting),
            published_batch_size=entry.published_batch,
            scale=setting.scale,
            tags=(*entry.tags, *(() if full else entry.cpu_tags), PUBLISHED_MODEL),
            parameters=entry.parameters,
        )
        for name, entry in entries().items()
    )


def _batch(entry: Entry, setting: Setting) -> int:
    if setting.scale == "full":
        return entry.published_batch
    cut = entry.cpu_batch[setting.mode.value]
    return min(TINY_BATCH, cut) if setting.scale == "tiny" else cut


def build(case: Case) -> Workload:
    """The model of ``case`` with random weights, random symbols to read, and those to predict."""
    import torch

    from suites.models.additions import additions
    from suites.models.next_symbol import every_symbol_loss, last_symbol_loss

    if case.config or case.pretrained:
        raise LookupError(
            "--model-config and --pretrained: the models of tiny_gpt are fixed, and never trained"
        )
    entry = entries()[case.name]
    config = dict(entry.config)
    if config.get("dropout"):
        config["dropout"] = KEPT_DROPOUT
    module = make_model(entry.implementation, config)
    length = config["input_len"] if "input_len" in config else config["block_size"]
    every = entry.loss == "every_symbol"

    def given(text: Tensor) -> tuple[Any, Any, Any]:
        """Tokens (batch, length), and the symbol after each, or (batch,) after the last."""
        target = text[:, 1:] if every else text[:, -1]
        return (text[:, :-1].contiguous(),), {}, target.contiguous()

    args, _, target = given(torch.randint(config["vocab_size"], (case.batch, length + 1)))
    return Workload(
        module=module,
        args=args,
        target=target,
        loss=every_symbol_loss if every else last_symbol_loss,
        batches=lambda step: given(additions(case.batch, length + 1, step)),
    )


def make_model(implementation: str, config: Mapping[str, Any]) -> nn.Module:
    """The model of that name with random weights. ``LookupError`` if there is no such name."""
    if implementation not in IMPLEMENTATIONS:
        raise LookupError(f"there is no implementation called {implementation!r}")
    module = importlib.import_module(f"{__package__}.models.{IMPLEMENTATIONS[implementation]}")
    model: nn.Module = getattr(module, implementation)(**config)
    return model


def warm(name: str) -> None:
    """Imports what the case's ``build`` imports, for a host that forks workers."""
    importlib.import_module(f"{__package__}.models.next_symbol")
    if entries()[name].implementation == "HuggingFaceGPT":
        from transformers import OpenAIGPTModel  # noqa: F401
