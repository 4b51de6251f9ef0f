"""Study A: how long a small character-level GPT takes to train, by precision and compiler."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.devices import attention_kernels, of
from runner.errors import UsageError
from studies.corpus import seeded_model, shakespeare, synthetic
from studies.journal import PASS, Journal, say
from studies.options import TrainingTimeOptions
from studies.training_time.chunks import alternate, plan_chunks

SIZES = {"steps": 300, "batch": 8, "block": 256, "seeds": 3}
ACCELERATED = {**SIZES, "steps": 5000, "batch": 64}
QUICK = {"steps": 12, "batch": 2, "block": 32, "seeds": 2, "every": 4}
LONGEST_BLOCK, EVALUATIONS = 256, 10


def run(options: TrainingTimeOptions, command: Sequence[str], _: Sequence[str]) -> Path:
    """Trains every variant with every seed; returns the folder. ``UsageError`` before anything is written."""
    from studies.training_time.learners import learners_of

    corpus = synthetic() if options.quick and options.data_dir is None else shakespeare(options.data_dir)
    sizes = sizes_of(options)
    chunks = plan_chunks(sizes["steps"], options.chunk, sizes["every"])
    journal = Journal(options.output_dir, "training-time")
    # compilation is timed, so the caches of earlier runs must not be used
    with tempfile.TemporaryDirectory(prefix="study-cache-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        journal.begin(
            options,
            command,
            sizes=sizes,
            text={"name": corpus.name, "characters": len(corpus.text), "training": corpus.training_length},
            parameters=sum(p.numel() for p in seeded_model("GPT_150k", 0).parameters()),
            variants=[f"{precision} {mode}" for precision in options.precisions for mode in options.modes],
            attention_kernels=attention_kernels(),
        )
        for seed in range(sizes["seeds"]):
            for kind, facts in alternate(
                learners_of(options, corpus, sizes, seed), chunks, random.Random(seed)
            ):
                _tell(kind, facts, sizes["batch"] * sizes["block"] / corpus.training_length, seed)
                journal.write(kind, seed=seed, **facts)
    return journal.path


def sizes_of(options: TrainingTimeOptions) -> dict[str, int]:
    """Steps, batch, block, seeds and steps between evaluations, as requested or by default."""
    asked = {name: getattr(options, name) for name in QUICK}
    default = QUICK if options.quick else ACCELERATED if of(options.device).accelerated else SIZES
    sizes = {**default, **{name: value for name, value in asked.items() if value}}
    if sizes["block"] > LONGEST_BLOCK:
        raise UsageError(
            f"--block-size: the model reads {LONGEST_BLOCK} characters at most, not {sizes['block']}"
        )
    return {**sizes, "every": sizes.get("every", max(1, sizes["steps"] // EVALUATIONS))}


def _tell(kind: str, facts: dict[str, Any], epoch: float, seed: int) -> None:
    name = facts["variant"]
    if kind == "prepared":
        say(f"{name}: ready to train after {facts['prepare_s']:.1f} s")
    elif kind == "chunk" and facts["valid"] is not None:
        step = facts["first"] + facts["steps"] - 1
        losses = f"loss={facts['losses'][-1]:.6f} train={facts['train']:.6f} valid={facts['valid']:.6f}"
        say(f"Step {step:5d}: {losses} epoch={(step + 1) * epoch:.2f}  {name}, seed {seed}")
    elif kind == "outcome" and facts["status"] != PASS:
        say(f"{name}: {facts['status']}: {facts['message']}")
