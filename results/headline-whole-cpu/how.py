"""The models of ``make headline``: ``python results/headline-whole-cpu/how.py`` draws them from ``steps.csv``.

The rule, written before anything was measured:

- A model runs whole (``--scale=full``), with a batch of ``BATCH``: one text or sound (of the published length),
  one image of huggingface, eight images of timm_models, the published batch of tiny_gpt.
- Its forward has at most ``MOST_GFLOP``: a training step is three times as much, about 3 s on two cores.
- Each family (the module of the library that has the model's class; of tiny_gpt, the implementation) counts
  once, with the first model of the suite's list that fits.
- Of the families of a suite, ``DRAWN`` are drawn at random with seed ``SEED``, from the sorted names.

``how.py count SUITE...`` counts the FLOPs of a forward of each listed model, in eager, by torch's counter, and
appends them to ``steps.csv``. A model without a count within ``LIMIT_S`` is not drawn: on the busy core of that
day Mamba_130M, RWKV4_169M, RecurrentGemma_2B, ModernBERT_base, AllenaiLongformerBase, and three of timm_models
whose counts failed (cait_m36_384, pit_b_224, vit_base_patch16_siglip_224).
"""

from __future__ import annotations

import csv
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from harness.loading.suite_files import load_suite  # noqa: E402 - nothing is installed
from harness.schema import Case, Mode, Setting  # noqa: E402

MOST_GFLOP, LIMIT_S, SEED = 140, 100, 41
BATCH = {"huggingface": 1, "timm_models": 8}
DRAWN = {"huggingface": 20, "timm_models": 16, "tiny_gpt": 4}
STEPS, MODELS = HERE / "steps.csv", HERE / "models.csv"


def listed(suite: str) -> Iterator[Case]:
    for case in load_suite(suite).cases(Setting(mode=Mode.INFERENCE, device_type="cpu", scale="full")):
        if not case.skip and "on_request" not in case.tags:
            yield replace(case, batch_size=BATCH.get(suite, case.batch_size))


def count(suite: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, late)
    for case in listed(suite):
        signal.alarm(LIMIT_S)
        images = case.batch_size if suite == "timm_models" else 1  # counted with one image
        try:
            workload = load_suite(suite).build(replace(case, batch_size=1) if images > 1 else case)
            counter = FlopCounterMode(display=False)
            with torch.no_grad(), counter:
                workload.module.eval()(*workload.args, **workload.kwargs)
        except (TimeoutError, AssertionError, RuntimeError) as error:
            print(case.name, error, file=sys.stderr)
            continue
        finally:
            signal.alarm(0)
        kind = type(workload.module)
        family = kind.__name__ if suite == "tiny_gpt" else kind.__module__.rpartition(".")[2]
        parameters = sum(parameter.numel() for parameter in workload.module.parameters())
        gflop = counter.get_total_flops() * images / 1e9
        with STEPS.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([suite, case.name, family, case.batch_size, parameters, f"{gflop:.2f}"])


def draw() -> None:
    families: dict[str, dict[str, dict[str, str]]] = {suite: {} for suite in DRAWN}
    with STEPS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["suite"] in families and float(row["gflop"]) <= MOST_GFLOP:
                families[row["suite"]].setdefault(row["family"], row)
    with MODELS.open("w", newline="", encoding="utf-8") as file:
        for suite, first in families.items():
            rows = {row["model"]: row for row in first.values()}
            for name in sorted(random.Random(SEED).sample(sorted(rows), DRAWN[suite])):
                csv.writer(file).writerow([name, rows[name]["batch"]])
            print(f"{suite}: {DRAWN[suite]} of {len(rows)} families")


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        for word in sys.argv[2:]:
            count(word)
    else:
        draw()
