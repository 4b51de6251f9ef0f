"""Study A: how long a small character-level GPT takes to train, by precision and compiler."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.devices import attention_kernels, of
from runner.errors import UsageError
from studies.corpus import Corpus, shakespeare, synthetic
from studies.journal import PASS, Journal, say
from studies.options import TrainingTimeOptions
from studies.training_time.chunks import Event, Learner, alternate, plan_chunks

if TYPE_CHECKING:
    from studies.training_time.learners import Lesson

SIZES = {"steps": 300, "batch": 8, "block": 256, "seeds": 3}
ACCELERATED = {**SIZES, "steps": 5000, "batch": 64}
QUICK = {"steps": 12, "batch": 2, "block": 32, "seeds": 2, "every": 4}
LONGEST_BLOCK, EVALUATIONS = 256, 10


def run(options: TrainingTimeOptions, command: Sequence[str], _: Sequence[str]) -> Path:
    """Trains every variant with every seed; returns the folder. ``UsageError`` before anything is written."""
    corpus = synthetic() if options.quick and options.data_dir is None else shakespeare(options.data_dir)
    sizes = sizes_of(options)
    journal = Journal(options.output_dir, "training-time")
    # compilation is timed, so the caches of earlier runs must not be used
    with closing(journal), tempfile.TemporaryDirectory(prefix="study-cache-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        _train(options, sizes, corpus, journal, command)
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


def _train(
    options: TrainingTimeOptions,
    sizes: dict[str, int],
    corpus: Corpus,
    journal: Journal,
    command: Sequence[str],
) -> None:
    from studies.training_time.learners import make_lesson

    journal.begin(
        options,
        command,
        sizes=sizes,
        text={"name": corpus.name, "characters": len(corpus.text), "training": corpus.training_length},
        parameters=sum(p.numel() for p in _module(0).parameters()),
        variants=[f"{precision} {mode}" for precision in options.precisions for mode in options.modes],
        attention_kernels=attention_kernels(),
    )
    chunks = plan_chunks(sizes["steps"], options.chunk, sizes["every"])
    epoch = sizes["batch"] * sizes["block"] / corpus.training_length
    for seed in range(sizes["seeds"]):
        lesson = make_lesson(corpus, seed=seed, **{name: sizes[name] for name in ("block", "steps", "batch")})
        for event in alternate(_learners(options, lesson, seed), chunks, random.Random(seed)):
            _tell(event, epoch, seed)
            kind, facts = event
            journal.write(kind, seed=seed, **facts)


def _module(seed: int) -> Any:
    """The model of about 150k parameters, with weights of this seed."""
    from harness.timing.step import seed_everything
    from suites.tiny_gpt import entries, make_model

    entry = entries()["GPT_150k"]
    seed_everything(seed)
    return make_model(entry.implementation, entry.config)


def _learners(options: TrainingTimeOptions, lesson: Lesson, seed: int) -> list[Learner]:
    import torch

    from harness.precision import precision
    from studies.training_time.learners import TorchLearner

    return [
        TorchLearner(
            f"{name} {mode}",
            _module(seed),
            lesson,
            mode=mode,
            precision=precision(name, options.device),
            device=torch.device(options.device),
            learning_rate=options.learning_rate,
        )
        for name in options.precisions
        for mode in options.modes
    ]


def _tell(event: Event, epoch: float, seed: int) -> None:
    kind, facts = event
    name = facts["variant"]
    if kind == "prepared":
        say(f"{name}: ready to train after {facts['prepare_s']:.1f} s")
    elif kind == "chunk" and facts["valid"] is not None:
        step = facts["first"] + facts["steps"] - 1
        losses = f"loss={facts['losses'][-1]:.6f} train={facts['train']:.6f} valid={facts['valid']:.6f}"
        say(f"Step {step:5d}: {losses} epoch={(step + 1) * epoch:.2f}  {name}, seed {seed}")
    elif kind == "outcome" and facts["status"] != PASS:
        say(f"{name}: {facts['status']}: {facts['message']}")
