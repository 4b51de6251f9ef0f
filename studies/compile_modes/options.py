"""The settings and models of study C. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.schema import DTYPES, SCALES, Mode
from harness.settings import COUNT, WHOLE, choice, setting
from runner.errors import UsageError
from studies.options import StudyOptions, check_precisions, one_flag, row, usable_device

MODES: Mapping[str, str] = {
    "default": "inductor",
    "reduce-overhead": "inductor_reduce_overhead",
    "max-autotune": "inductor_max_autotune",
}
"""Mode of ``torch.compile`` -> name of the compiler in this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A case of a suite, with the default scale and batch size on a CPU."""

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
QUICK_ROUNDS = 6  # the smallest number with a 95 % interval
FULL_TOKENS = (512, 128)  # prompt and new tokens at full scale; our choice: a generation takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileModesOptions(StudyOptions):
    """None: the default for the model and the device."""

    models: tuple[str, ...] = row(
        (),
        "--models=NAME",
        listed=True,
        kind=choice("model", MODELS),
        help=f"comma-separated, of {', '.join(MODELS)} (default: all; with --quick the last two models)",
    )
    modes: tuple[str, ...] = row(
        (),
        "--modes=NAME",
        listed=True,
        kind=choice("mode", MODES),
        help=f"of torch.compile, comma-separated, of {', '.join(MODES)}; each against eager (default: "
        "all; with --quick the first and the last mode)",
    )
    dtypes: tuple[str, ...] = row(
        (),
        "--dtypes=NAME",
        listed=True,
        kind=choice("precision", DTYPES),
        help=f"comma-separated, of {', '.join(DTYPES)} (default: float32 on a CPU, else bfloat16)",
    )
    scale: str | None = row(
        None,
        "--scale=SCALE",
        kind=choice("scale", SCALES),
        help=f"{', '.join(SCALES)} (default: full; for text on a CPU small; with --quick tiny)",
    )
    batch: int | None = row(  # text is generated with batch size 1
        None,
        "--batch-size=N",
        kind=COUNT,
        help="images in a step (default: the suite's batch size; at full scale on a CPU 2)",
    )
    prompt_tokens: int | None = row(
        None,
        "--prompt-tokens=N",
        kind=COUNT,
        help=f"prompt length of text generation (default: {FULL_TOKENS[0]} at full scale, 32 at small, 8 at "
        "tiny)",
    )
    new_tokens: int | None = row(
        None,
        "--new-tokens=N",
        kind=COUNT,
        help=f"generated tokens (default: {FULL_TOKENS[1]} at full scale, 32 at small, 4 at tiny)",
    )
    rounds: int | None = row(
        None,
        "--rounds=N",
        kind=COUNT,
        help="exactly this number of rounds (default: at least 10, until the interval is within +-2 %%; "
        f"with --quick {QUICK_ROUNDS})",
    )
    freezing: bool | None = setting(
        None,
        one_flag(
            "--freezing",
            help="weights are constants for the compiler, in every mode; on a CPU, max-autotune needs this "
            "to choose kernels (default: yes on a CPU, else no)",
        ),
        one_flag("--no-freezing", means=False, help="weights are no constants"),
    )
    seed: int = row(
        1337,
        "--seed=N",
        kind=WHOLE,
        help="seed of the weights, the inputs and the order of the rounds (default: 1337)",
    )

    def checked(self) -> CompileModesOptions:
        """With the defaults for the device. ``UsageError`` for settings that exclude each other."""
        models = self.models or (QUICK_MODELS if self.quick else tuple(MODELS))
        modes = self.modes or (QUICK_MODES if self.quick else tuple(MODES))
        writes = any(MODELS[name].mode is Mode.GENERATE for name in models)
        for flag, value in (("--prompt-tokens", self.prompt_tokens), ("--new-tokens", self.new_tokens)):
            if value is not None and not writes:
                raise UsageError(
                    f"{flag}: none of these models generates text; leave it out, or add Llama_2_7B"
                )
        if self.new_tokens == 1:
            raise UsageError(
                "--new-tokens: the first token belongs to prefill; give 2 or more, so that there is decode"
            )
        device = usable_device(self.device)
        dtypes = self.dtypes or (("float32",) if device == "cpu" else ("bfloat16",))
        check_precisions("--dtypes", dtypes, device)
        return replace(
            self,
            device=device,
            models=tuple(name for name in MODELS if name in models),
            modes=tuple(name for name in MODES if name in modes),
            dtypes=dtypes,
            rounds=self.rounds or (QUICK_ROUNDS if self.quick else None),
            freezing=device == "cpu" if self.freezing is None else self.freezing,
        )

    def scale_of(self, name: str) -> str:
        """The scale at which a model runs."""
        if self.scale is not None:
            return self.scale
        if self.quick:
            return "tiny"
        return MODELS[name].cpu_scale if self.device == "cpu" else "full"

    def batch_of(self, name: str) -> int | None:
        """Images in a step. None: the suite's default."""
        if MODELS[name].mode is Mode.GENERATE:
            return None
        own = MODELS[name].cpu_batch if self.device == "cpu" else None
        return self.batch or (own if self.scale_of(name) == "full" else None)

    def tokens_of(self, name: str) -> tuple[int | None, int | None]:
        """Prompt and new tokens. None: the suite's default, or the model generates no text."""
        if MODELS[name].mode is not Mode.GENERATE:
            return None, None
        prompt, new = FULL_TOKENS if self.scale_of(name) == "full" else (None, None)
        return self.prompt_tokens or prompt, self.new_tokens or new
