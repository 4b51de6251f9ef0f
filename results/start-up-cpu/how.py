"""A/A and planted differences of compile times: ``python results/start-up-cpu/how.py FOLDER``.

Nine candidates in one job, five cold and five warm compilations each, in fresh processes: five times the same
cheap compiler (Dynamo and AOTAutograd over 40 layers, eager kernels), and four times the same with a sleep of
15 % of what it takes. The equal ones make 10 + 6 A/A pairs from cold caches, and as many from warm ones, of which this compiler
has no use; both kinds make 20 planted pairs each.

``how.py parts RUN ROUNDS`` judges each ROUNDS rounds of the run of pairs in the folder RUN as if nothing else had run.

``how.py power`` draws from the scatter within the rounds of ``pairs.csv`` how often 15 % would be found.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean

import numpy as np
from scipy import stats

EQUAL, SLOWER, SHARE = 5, 4, 0.15
MODEL = """
import os, time
import torch
from torch._dynamo.backends.debugging import aot_eager

def make():
    layers = [layer for _ in range(40) for layer in (torch.nn.Linear(32, 32), torch.nn.GELU())]
    return torch.nn.Sequential(*layers), torch.randn(8, 32)

def slower(graph, inputs):
    time.sleep(float(os.environ.get("PLANTED_S", "0")))
    return aot_eager(graph, inputs)
"""


def measured(folder: Path, candidates: list[str], rounds: int) -> dict[str, object]:
    code = "".join(f"\n\ndef {name}(graph, inputs):\n    return aot_eager(graph, inputs)\n" for name in candidates if name.startswith("same"))
    code += "".join(f"\n\ndef {name}(graph, inputs):\n    return slower(graph, inputs)\n" for name in candidates if name.startswith("slow"))
    file = folder.parent / f"{folder.name}_model.py"
    file.write_text(MODEL + code, encoding="utf-8")
    runner = Path(__file__).resolve().parents[2] / "runner.py"
    compilers = ",".join(f"{file}:{name}" for name in candidates)
    words = [f"--model={file}:make", "--inference", "-dcpu", "-t1", "-n6", "--processes=1", f"--compilers={compilers}"]
    command = [sys.executable, str(runner), *words, f"--compile-runs={rounds}", f"--output-dir={folder}"]
    subprocess.run(command, check=False, stdout=sys.stderr)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def main(folder: Path, rounds: int = 5) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    first = measured(folder / "first", ["same0"], 3)
    usual = mean(one["compilation_latency_s"] for one in first["compile_starts"])
    os.environ["PLANTED_S"] = str(SHARE * usual)
    names = [f"same{n}" for n in range(EQUAL)] + [f"slow{n}" for n in range(SLOWER)]
    summary = measured(folder / "pairs", names, rounds)
    counts: dict[str, list[str]] = {}
    for pair in summary["compile_pairs"]:
        kinds = sorted("slow" if ".slow" in pair[side] else "same" for side in ("first", "second"))
        if pair["first"] != pair["second"]:
            counts.setdefault(f"{' and '.join(kinds)}, {pair['first_start']}", []).append(pair["verdict"])
    print(f"usual {usual:.3f} s, planted {SHARE * usual:.3f} s")
    for kind, verdicts in sorted(counts.items()):
        named = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in sorted(set(verdicts)))
        print(f"{kind}: {len(verdicts)} pairs: {named}")


def parts(run: Path, rounds: int) -> None:
    """Of every ``rounds`` rounds, and of all of them, how many pairs are equal or planted, and decided."""
    from collections import Counter
    from dataclasses import replace

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from runner.analysis.derive import summarize
    from runner.store.record_file import read_records

    records = read_records(run / "records.jsonl").records
    most = 1 + max(compilation.round for record in records for compilation in record.compilations)
    total: Counter[str] = Counter()
    for begin in range(0, most, rounds):
        cut = [
            replace(r, compilations=tuple(c for c in r.compilations if begin <= c.round < begin + rounds))
            for r in records
        ]
        counts: Counter[str] = Counter()
        for pair in summarize(cut).compile_pairs:
            names = [side.record.candidate for side in (pair.first, pair.second)]
            if names[0] != names[1]:
                kind = "equal" if len({"slow" in name for name in names}) == 1 else "planted"
                counts[f"{kind}, {pair.first_start}, {pair.verdict.value}"] += 1
        total += counts
        print(f"rounds {begin} to {begin + rounds - 1}:", dict(sorted(counts.items())))
    print("all:", dict(sorted(total.items())))


def power(runs: int = 2000) -> None:
    """Found: Student's interval of the paired logarithms of one comparison leaves out 2 %. No correction for several."""
    logs: dict[str, dict[str, list[float]]] = {}
    with (Path(__file__).parent / "pairs.csv").open() as file:
        for row in csv.DictReader(file):
            seconds = float(row["compilation_latency_s"]) - float(row["compile_waiting_s"])
            logs.setdefault(row["start"], {}).setdefault(row["candidate"], []).append(math.log(seconds))
    rng = np.random.default_rng(0)
    for start, of_candidate in logs.items():
        table = np.array(list(of_candidate.values()))  # candidates x rounds
        table = table - table.mean(1, keepdims=True)
        within = table - table.mean(0)
        sd = math.sqrt((within**2).sum() / ((len(table) - 1) * (table.shape[1] - 1)))
        pool = within.ravel() * sd / within.std()
        print(f"{start}: the logarithms scatter by {sd:.2f} within a round")
        for n in (5, 10, 15, 20, 25, 30, 40):
            pairs = math.log(1 + SHARE) + rng.choice(pool, (runs, n)) - rng.choice(pool, (runs, n))
            half = stats.t.ppf(0.975, n - 1) * pairs.std(1, ddof=1) / math.sqrt(n)
            print(f"  {n} a side: found in {np.mean(pairs.mean(1) - half > math.log(1.02)):.0%}")


if __name__ == "__main__" and sys.argv[1:] == ["power"]:
    power()
elif __name__ == "__main__" and sys.argv[1:2] == ["parts"]:
    parts(Path(sys.argv[2]), int(sys.argv[3]))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
