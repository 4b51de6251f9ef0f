"""Study A: how long a small character-level GPT takes to train, by precision and compiler."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.devices import attention_kernels, of
from runner.errors import UsageError
from studies.corpus import Corpus, shakespeare, synthetic
from studies.journal import Journal, begin
from studies.shown import Lines, progress, step_line
from studies.training_time.chunks import Done, Failed, Learner, Prepared, alternate, facts_of, plan_chunks
from studies.training_time.options import TrainingTimeOptions

if TYPE_CHECKING:
    from studies.learners import Lesson

STEPS, STEPS_ACCELERATED = 300, 5000
BATCH, BATCH_ACCELERATED = 8, 64
SEEDS, EVALUATIONS = 3, 10
QUICK = {"steps": 12, "batch": 2, "block": 32, "seeds": 2, "every": 4}
NATIVE = "libtorch C++"


def run(options: TrainingTimeOptions, command: Sequence[str]) -> int:
    """Trains every variant with every seed and reports. ``UsageError`` before anything is written."""
    corpus = _corpus(options)
    sizes = sizes_of(options)
    if options.environments:
        from studies.training_time.environments import run as run_in_environments

        return run_in_environments(options, command)
    journal = Journal(options.output_dir, "training-time")
    # compilation is timed, so the caches of earlier runs must not be used
    with closing(journal), tempfile.TemporaryDirectory(prefix="study-cache-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        _train(options, sizes, corpus, journal, command)
    if options.records_only:
        return 0
    from studies.report import report

    return report(journal.path)


def sizes_of(options: TrainingTimeOptions) -> dict[str, int]:
    """Steps, batch, block, seeds and steps between evaluations, as requested or by default."""
    fast = of(options.device).accelerated
    steps = options.steps or (QUICK["steps"] if options.quick else STEPS_ACCELERATED if fast else STEPS)
    block = options.block or (QUICK["block"] if options.quick else 256)
    if block > 256:
        raise UsageError(f"--block-size: the model reads 256 characters at most, not {block}")
    return {
        "steps": steps,
        "batch": options.batch or (QUICK["batch"] if options.quick else BATCH_ACCELERATED if fast else BATCH),
        "block": block,
        "seeds": options.seeds or (QUICK["seeds"] if options.quick else SEEDS),
        "every": options.every or (QUICK["every"] if options.quick else max(1, steps // EVALUATIONS)),
    }


def _corpus(options: TrainingTimeOptions) -> Corpus:
    if options.quick and options.data_dir is None:
        return synthetic()
    return shakespeare(options.data_dir)


def _train(
    options: TrainingTimeOptions,
    sizes: dict[str, int],
    corpus: Corpus,
    journal: Journal,
    command: Sequence[str],
) -> None:
    import torch

    names = variant_names(options)
    begin(
        journal,
        "training-time",
        options,
        command,
        sizes=sizes,
        text={"name": corpus.name, "characters": len(corpus.text), "training": corpus.training_length},
        parameters=sum(p.numel() for p in _module(0).parameters()),
        variants=names,
        attention_kernels=attention_kernels(),
    )
    if options.native:
        _build_native(options, journal)
    tokens = torch.tensor(corpus.encoded())
    chunks = plan_chunks(sizes["steps"], options.chunk, sizes["every"])
    epoch = sizes["batch"] * sizes["block"] / corpus.training_length
    with progress(len(names) * len(chunks) * sizes["seeds"]) as shown:
        for seed in range(sizes["seeds"]):
            lesson = _lesson(tokens, corpus, sizes, seed)
            learners = _learners(options, lesson, seed)
            ended: set[str] = set()
            for event in alternate(learners, chunks, random.Random(seed)):
                _tell(event, shown, epoch, seed)
                kind = "chunk" if isinstance(event, Done) else "prepared"
                if isinstance(event, Failed):
                    ended.add(event.name)
                    kind = "outcome"
                journal.write(kind, seed=seed, **facts_of(event))
            for learner in learners:
                learner.close()
                if learner.name not in ended:
                    journal.write("outcome", seed=seed, variant=learner.name, status="PASS", message=None)


def _build_native(options: TrainingTimeOptions, journal: Journal) -> None:
    """Builds the C++ program once for all trainings. ``NativeLearner.prepare`` reports a failure."""
    from studies.training_time.native import build

    began = time.perf_counter()
    with contextlib.suppress(RuntimeError, OSError, subprocess.SubprocessError):
        print(f"{NATIVE}: building where needed, which may take minutes", flush=True)
        build(options.device)
        journal.write("built", variant=f"float32 {NATIVE}", seed=0, seconds=time.perf_counter() - began)


def variant_names(options: TrainingTimeOptions) -> list[str]:
    names = [f"{precision} {mode}" for precision in options.precisions for mode in options.modes]
    return [*names, f"float32 {NATIVE}"] if options.native else names


def _module(seed: int) -> Any:
    """The model of about 150k parameters, with weights of this seed."""
    from harness.timing.step import seed_everything
    from suites.tiny_gpt import entries, make_model

    entry = entries()["GPT_150k"]
    seed_everything(seed)
    return make_model(entry.implementation, entry.config)


def _lesson(tokens: Any, corpus: Corpus, sizes: dict[str, int], seed: int) -> Lesson:
    from studies.learners import make_lesson

    return make_lesson(
        tokens,
        corpus.training_length,
        block=sizes["block"],
        steps=sizes["steps"],
        batch=sizes["batch"],
        seed=seed,
    )


def _learners(options: TrainingTimeOptions, lesson: Lesson, seed: int) -> list[Learner]:
    import torch

    from harness.precision import precision
    from studies.learners import TorchLearner

    make = partial(
        TorchLearner, device=torch.device(options.device), learning_rate=options.learning_rate, lesson=lesson
    )
    found: list[Learner] = [
        make(f"{name} {mode}", _module(seed), mode=mode, precision=precision(name, options.device))
        for name in options.precisions
        for mode in options.modes
    ]
    if options.native:
        from studies.training_time.native import NativeLearner

        found.append(
            NativeLearner(
                f"float32 {NATIVE}",
                _module(seed),
                lesson,
                device=options.device,
                learning_rate=options.learning_rate,
                threads=torch.get_num_threads(),
            )
        )
    return found


def _tell(event: Prepared | Done | Failed, shown: Lines, epoch: float, seed: int) -> None:
    if isinstance(event, Failed):
        shown.say(f"{event.name}: failed in {event.phase}: {event.message}")
    elif isinstance(event, Done):
        shown.advance(f"{event.name}  step {event.chunk.last}  loss={event.losses[-1]:.3f}")
        if event.evaluation is not None:
            step = event.chunk.last
            line = step_line(step, event.losses[-1], event.evaluation, (step + 1) * epoch)
            shown.say(f"{line}  {event.name}, seed {seed}")
    else:
        shown.say(f"{event.name}: ready to train after {event.seconds:.1f} s")
