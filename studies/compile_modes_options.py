"""Study C's flags and options, and the models that it knows. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.schema import DTYPES, SCALES, Mode
from runner.errors import UsageError, unknown
from runner.flag_types import count, whole
from studies.options import add_common, check_precisions, device_of, words

MODES: Mapping[str, str] = {
    "default": "inductor",
    "reduce-overhead": "inductor_reduce_overhead",
    "max-autotune": "inductor_max_autotune",
}
"""The modes of ``torch.compile`` that the study compares, and the house's names for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A case of one of the suites. On a CPU it has another scale, or a smaller batch, by default."""

    title: str
    suite: str
    mode: Mode
    cpu_scale: str
    cpu_batch: int | None


MODELS: Mapping[str, Model] = {
    "resnet152": Model(
        title="ResNet-152", suite="timm_models", mode=Mode.INFERENCE, cpu_scale="full", cpu_batch=2
    ),
    "vit_base_patch16_224": Model(
        title="ViT-B/16", suite="timm_models", mode=Mode.INFERENCE, cpu_scale="full", cpu_batch=2
    ),
    "Llama_2_7B": Model(
        title="Llama-2-7B", suite="huggingface", mode=Mode.GENERATE, cpu_scale="small", cpu_batch=None
    ),
}

QUICK_MODELS, QUICK_MODES = ("vit_base_patch16_224", "Llama_2_7B"), ("default", "max-autotune")
QUICK_ROUNDS = 6  # the fewest that have a 95 % interval
FULL_TOKENS = (512, 128)  # prompt and new ones at full scale: ours, so that a generation takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileModesOptions:
    """Study C. None: what suits the model and the device."""

    device: str
    models: tuple[str, ...]
    modes: tuple[str, ...]
    dtypes: tuple[str, ...]
    scale: str | None
    batch: int | None  # images in a step; text is generated one by one
    prompt_tokens: int | None
    new_tokens: int | None
    rounds: int | None  # None: until the interval is narrow enough
    freezing: bool
    seed: int
    threads: int | None
    output_dir: Path | None
    quick: bool

    def scale_of(self, name: str) -> str:
        """The scale at which a model runs."""
        if self.scale is not None:
            return self.scale
        if self.quick:
            return "tiny"
        return MODELS[name].cpu_scale if self.device == "cpu" else "full"

    def batch_of(self, name: str) -> int | None:
        """Images in a step; None leaves it to the suite."""
        if MODELS[name].mode is Mode.GENERATE:
            return None
        own = MODELS[name].cpu_batch if self.device == "cpu" else None
        return self.batch or (own if self.scale_of(name) == "full" else None)

    def tokens_of(self, name: str) -> tuple[int | None, int | None]:
        """Prompt and new tokens; None leaves it to the suite, or there is no text at all."""
        if MODELS[name].mode is not Mode.GENERATE:
            return None, None
        prompt, new = FULL_TOKENS if self.scale_of(name) == "full" else (None, None)
        return self.prompt_tokens or prompt, self.new_tokens or new


def add_compile_modes(parser: argparse.ArgumentParser) -> None:
    add_common(parser, text=False)
    parser.add_argument(
        "--models",
        action=words("--models", "model", tuple(MODELS)),
        help=f"comma-separated, of {', '.join(MODELS)} (default: all; with --quick the last two)",
    )
    parser.add_argument(
        "--modes",
        action=words("--modes", "mode", tuple(MODES)),
        help=f"of torch.compile, comma-separated, of {', '.join(MODES)}; each against eager (default: "
        "all; with --quick the first and the last)",
    )
    parser.add_argument(
        "--dtypes",
        action=words("--dtypes", "precision", DTYPES),
        help=f"comma-separated, of {', '.join(DTYPES)} (default: float32 on a CPU, else bfloat16)",
    )
    parser.add_argument(
        "--scale",
        help=f"{', '.join(SCALES)} (default: full; on a CPU small for text; with --quick tiny)",
    )
    parser.add_argument(
        "--batch-size",
        type=count("--batch-size"),
        help="images in a step (default: the suite's; at full scale on a CPU 2)",
    )
    prompt, new = FULL_TOKENS
    parser.add_argument(
        "--prompt-tokens",
        type=count("--prompt-tokens"),
        help=f"of text generation (default: {prompt} at full scale, 32 at small, 8 at tiny)",
    )
    parser.add_argument(
        "--new-tokens",
        type=count("--new-tokens"),
        help=f"of text generation (default: {new} at full scale, 32 at small, 4 at tiny)",
    )
    parser.add_argument(
        "--rounds",
        type=count("--rounds"),
        help="exactly so many of eager and compiled in turns (default: until the interval is within +-2 %%, "
        f"10 at least; with --quick {QUICK_ROUNDS})",
    )
    parser.add_argument(
        "--freezing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="weights are constants for the compiler, in every mode; without it max-autotune has nothing to "
        "choose from on a CPU (default: yes on a CPU, else no)",
    )
    parser.add_argument(
        "--seed", type=whole("--seed"), default=1337, help="of weights, inputs and orders (default: 1337)"
    )


def compile_modes_options(given: argparse.Namespace) -> CompileModesOptions:
    """``UsageError`` for anything that cannot be meant."""
    if given.scale is not None and given.scale not in SCALES:
        raise unknown("--scale", given.scale, "scale", SCALES)
    models = given.models or (QUICK_MODELS if given.quick else tuple(MODELS))
    modes = given.modes or (QUICK_MODES if given.quick else tuple(MODES))
    writes = any(MODELS[name].mode is Mode.GENERATE for name in models)
    for flag, value in (("--prompt-tokens", given.prompt_tokens), ("--new-tokens", given.new_tokens)):
        if value is not None and not writes:
            raise UsageError(f"{flag}: none of these models generates text; leave it out, or add Llama_2_7B")
    if given.new_tokens == 1:
        raise UsageError("--new-tokens: the first one is prefill; give 2 or more, for there to be decode")
    device = device_of(given.device)
    dtypes = given.dtypes or (("float32",) if device == "cpu" else ("bfloat16",))
    check_precisions("--dtypes", dtypes, device)
    return CompileModesOptions(
        device=device,
        models=tuple(name for name in MODELS if name in models),
        modes=tuple(name for name in MODES if name in modes),
        dtypes=dtypes,
        scale=given.scale,
        batch=given.batch_size,
        prompt_tokens=given.prompt_tokens,
        new_tokens=given.new_tokens,
        rounds=given.rounds or (QUICK_ROUNDS if given.quick else None),
        freezing=device == "cpu" if given.freezing is None else given.freezing,
        seed=given.seed,
        threads=given.threads,
        output_dir=given.output_dir,
        quick=bool(given.quick),
    )
