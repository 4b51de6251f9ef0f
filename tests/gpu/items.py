"""What ``make card`` measures, in order: a row has flags, compilers, and its seconds on an H200."""

import re
from dataclasses import dataclass

from harness.devices import type_of
from harness.schema import Job
from runner.cli.parser import given
from runner.plan.checks import run_config
from runner.plan.jobs import plan

GRAPHS, TUNED = "inductor_reduce_overhead", "inductor_max_autotune"
GPT, BERT = "--training --suites=tiny_gpt", "--training --suites=huggingface --only=BertForMaskedLM"
VIT = "--inference --suites=timm_models --only=vit_base_patch16_224"
LLAMA = "--generate --suites=huggingface --only=Llama_3_2_1B --prompt-tokens=128 --new-tokens=64"
PRODUCT = "--inference --suites=ops --only=matmul_published"
ROWS = (
    (51, f"{GPT} --only=GPT_150k --dtypes=amp_bfloat16", f"eager,torchscript,inductor,{GRAPHS}"),
    (73, f"{GPT} --only=GPT2_124M --dtypes=bfloat16", f"eager,inductor,{GRAPHS}"),
    (67, f"{BERT} --dtypes=amp_bfloat16", f"inductor,{GRAPHS}"),
    (33, f"{GPT} --only=GPT_150k --dtypes=float32", "torchscript,inductor"),
    (67, "--training --suites=timm_models --only=resnet50 --batch-size=64 --dtypes=amp_bfloat16", "inductor"),
    (43, f"{GPT} --only=NanoGPT_addition --dtypes=bfloat16", f"inductor,{GRAPHS}"),
    (33, f"{GPT} --only=GPT_150k --dtypes=tf32", "torchscript,inductor"),
    (101, f"{VIT} --dtypes=bfloat16", f"inductor,{GRAPHS},{TUNED}"),
    (85, f"{LLAMA} --dtypes=bfloat16", GRAPHS),
    (33, f"{PRODUCT} --dtypes=bfloat16", "inductor"),
    (33, f"{PRODUCT} --dtypes=float32", "inductor"),
    # a first tau. In another precision than the first row: a run has one record of a model and candidate
    (75, f"{GPT} --only=GPT_150k --dtypes=bfloat16 --performance --processes=3", f"eager,inductor,{GRAPHS}"),
)
PROTOCOL = "--protocol=max_rounds=20 --protocol=max_measure_s=8"
TESTS_S = 100
TESTS = ("-k", "forked_worker_opens or two_environments")  # the four that failed on an H100, mended since
CPU_S, LONG_CPU_S, TESTS_CPU_S = 15, 45, 60  # the long ones compile C++, or start several interpreters
ON_A_CPU = {"inductor": "aot_eager", GRAPHS: "dynamo_eager", TUNED: "inductor"}
SMALLER = (
    *((r" --(batch-size|prompt-tokens|new-tokens)=\d+", ""), ("max_measure_s=8", "max_measure_s=1")),
    *(("tf32", "amp"), ("GPT2_124M", "MLP_addition"), ("processes=3", "processes=2")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """``jobs`` are measured. Without any, ``tests`` are the words of pytest."""

    name: str
    expected_s: float
    jobs: tuple[Job, ...] = ()
    tests: tuple[str, ...] = ()


def items(device: str) -> tuple[Item, ...]:
    """The rows on this device, which need not be there. ``UsageError`` for a name that is no device's."""
    on_cpu = type_of(device) == "cpu"
    planned = []
    for expected_s, flags, compilers in ROWS:
        words = f"{flags} {PROTOCOL}" if "--processes" in flags else f"{flags} --processes=1 {PROTOCOL}"
        names = compilers.split(",")
        if on_cpu:
            names = [ON_A_CPU.get(name, name) for name in names]
            words += " --scale=tiny --threads=1"
            for pattern, smaller in SMALLER:
                words = re.sub(pattern, smaller, words)
        typed = [*words.split(), f"--compilers={','.join(names)}", f"--devices={device}"]
        jobs = plan(run_config(given(typed)))
        name = f"{jobs[0].case.name} {jobs[0].case.mode.value} {jobs[0].dtype}"
        here_s = LONG_CPU_S if "inductor" in names or "--performance" in flags else CPU_S
        planned.append(Item(name=name, expected_s=here_s if on_cpu else expected_s, jobs=jobs))
    return (*planned, Item(name="tests", expected_s=TESTS_CPU_S if on_cpu else TESTS_S, tests=TESTS))
