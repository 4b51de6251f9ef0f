"""Judges training runs of which it is known whether they are right: docs/NUMERICS.md has the figures.

    python benchmarks/trajectories.py --minutes 30 --keep results/trajectories/runs.jsonl
    python benchmarks/trajectories.py --minutes 0 --keep results/trajectories/runs.jsonl      # the tables

*alarms*: on ten small models, further noisy eagers are judged against four others. *right*: the same models
with other kernels, threads, memory formats and compilers. *faults*: planted in GPT_150k, NanoGPT_addition and
a model with dropout. A line of the file has the distances of one run, so that another factor needs no run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from benchmarks.controls import CONTROLS  # noqa: E402
from harness.loading.suite_files import load_suite  # noqa: E402
from harness.numerics.trajectory import Trajectories  # noqa: E402
from harness.schema import REPEATS, Case, Course, Extras, Job, Mode, Protocol, Setting, Trajectory  # noqa: E402
from harness.timing.step import Variant  # noqa: E402
from harness.worker.session import Session  # noqa: E402
from harness.workload import Workload  # noqa: E402
from runner.analysis.statistics import wilson  # noqa: E402
from runner.analysis.verdicts.trajectory import distances, judge  # noqa: E402
from suites.models.additions import additions  # noqa: E402
from suites.models.nano_gpt import NanoGPT  # noqa: E402
from suites.models.next_symbol import MLP, every_symbol_loss, last_symbol_loss  # noqa: E402
from suites.models.tl_transformer import TLTransformer  # noqa: E402

FURTHER = 12  # noisy eagers beside the first four; each three of them are a run and its repeats
COMPILERS = ("aot_eager", "inductor")
SETTINGS = (
    ("float32", "none", 1e-3),
    ("float32", "sgd", 1e-2),
    ("float32", "none", 1e-2),
    ("bfloat16", "none", 1e-3),
)


class Convolutions(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.other, self.head = norm(8), norm(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.first(x)))
        x = x + functional.relu(self.other(self.second(x)))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.symbols, self.head = nn.Embedding(16, 16), nn.Linear(24, 16)
        self.cells = kind(16, 24, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(self.symbols(x))[0])  # type: ignore[no-any-return]


def _dense(activation: type[nn.Module], *more: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 64), activation(), *more, nn.Linear(64, 64), activation(), nn.Linear(64, 4)
    )


def _text(step: int) -> tuple[Any, Any, Any]:
    text = additions(16, 13, step)
    return (text[:, :-1].contiguous(),), {}, text[:, 1:].contiguous()


def _images(step: int) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(step)
    classes = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    target = torch.randint(5, (16,), generator=generator)
    return (classes[target] + torch.randn(16, 3, 8, 8, generator=generator),), {}, target


def _values(step: int) -> tuple[Any, Any, Any]:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))
    return (x,), {}, torch.sin(x[:, :4]) * x[:, 4:8]


GPT = {"vocab_size": 16, "block_size": 12, "n_layer": 1, "n_head": 2, "n_embd": 16}
HEADS = {"n_layer": 1, "n_head": 2, "d_model": 16, "d_head": 8, "d_mlp": 32}
MODELS: Mapping[str, tuple[Callable[[], nn.Module], Any, Any]] = {
    "tanh": (partial(_dense, nn.Tanh), functional.mse_loss, _values),
    "relu": (partial(_dense, nn.ReLU), functional.mse_loss, _values),
    "layer norm": (lambda: _dense(nn.GELU, nn.LayerNorm(64)), functional.smooth_l1_loss, _values),
    "batch norm": (partial(Convolutions, nn.BatchNorm2d), functional.cross_entropy, _images),
    "group norm": (partial(Convolutions, partial(nn.GroupNorm, 2)), functional.cross_entropy, _images),
    "LSTM": (partial(Recurrent, nn.LSTM), every_symbol_loss, _text),
    "GRU": (partial(Recurrent, nn.GRU), every_symbol_loss, _text),
    "GPT": (partial(NanoGPT, **GPT), every_symbol_loss, _text),
    "einsum": (partial(TLTransformer, vocab_size=16, block_size=12, **HEADS), every_symbol_loss, _text),
    "MLP": (
        partial(MLP, vocab_size=16, input_len=12, n_embd=8, n_hidden=64),
        last_symbol_loss,
        lambda n: (*_text(n)[:2], _text(n)[2][:, -1]),
    ),
    "dropout": (partial(NanoGPT, **GPT, dropout=0.1), every_symbol_loss, _text),
}


# -- faults ----------------------------------------------------------------------------------------


def _gradient(variant: Variant) -> None:
    weights = [weight for weight in variant.program.module.parameters() if weight.dim() > 1]
    weights[len(weights) // 2].register_hook(lambda gradient: gradient * (1 + 1e-4))


def _rate(variant: Variant) -> None:
    training = variant.training
    variant.training = lambda weights, protocol, rate: training(weights, protocol, 1.01 * rate)  # type: ignore[method-assign]


def _state(variant: Variant) -> None:
    training = variant.training

    def lowered(*given: Any) -> Callable[[], object]:
        update: Any = training(*given)

        def step() -> None:
            update()
            for _, tensor in update.state():
                tensor.copy_(tensor.bfloat16() if tensor.dim() else tensor)

        return step

    variant.training = lowered  # type: ignore[method-assign]


def _mask(variant: Variant) -> None:
    variant.program.module.register_forward_pre_hook(lambda *_: torch.manual_seed(0) and None)


FAULTS = {
    "gradient of a weight times 1.0001": _gradient,
    "learning rate 1 % off": _rate,
    "optimizer's state in bfloat16": _state,
    "dropout mask reused": _mask,
}
PLANTED = (
    *((name, "float32", "sgd", 3e-2, (_gradient, _rate)) for name in ("GPT_150k", "NanoGPT_addition")),
    *((name, "float32", "none", 1e-3, (_rate, _state)) for name in ("GPT_150k", "NanoGPT_addition")),
    ("dropout", "float32", "none", 1e-3, (_mask,)),
)


# -- runs ------------------------------------------------------------------------------------------


def job_of(name: str, dtype: str, optimizer: str, rate: float, steps: int) -> tuple[Job, Any]:
    suite = load_suite("tiny_gpt")
    setting = Setting(mode=Mode.TRAINING, device_type="cpu", scale="tiny")
    known = {case.name: case for case in suite.cases(setting)}
    own = Case(suite="own", name=name, mode=Mode.TRAINING, batch_size=None, published_batch_size=None)
    measured: Any = {"performance": False, "accuracy": False, "keep_dropout": name == "dropout"}
    protocol = Protocol(threads=1, optimizer=optimizer, **measured)
    extras = Extras(trajectory=steps, learning_rate=rate)

    def build(case: Case) -> Workload:
        make, loss, batches = MODELS[name]
        (args, _, target) = batches(1 << 20)
        return Workload(module=make(), args=args, target=target, loss=loss, batches=batches)

    candidates = () if name in known else COMPILERS
    job = Job(
        case=known.get(name, own),
        device="cpu",
        dtype=dtype,
        candidates=candidates,
        protocol=protocol,
        extras=extras,
    )
    return job, suite.build if name in known else build


def lines(
    name: str, dtype: str, optimizer: str, rate: float, planted: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """The runs of one model. A right or wrong run that is outside is repeated."""
    steps = 200 if planted else 100
    job, build = job_of(name, dtype, optimizer, rate, steps)
    session = Session(job, lambda _: None, build)
    session.open()
    bench = session._bench  # noqa: SLF001
    runs = Trajectories(job, bench, lambda _: None, 0.0)
    eager = runs.run("eager")
    known = Trajectory(steps=steps, optimizer=optimizer, learning_rate=rate, data="", eager=eager, courses=(), candidate=eager, **{k: v for k, v in runs.facts().items() if k != "batches"})  # fmt: skip
    noisy: list[Any] = []

    def line(what: str, run: str, course: Course, repeat: int = 0) -> dict[str, Any]:
        apart = [[float(f"{value:.2g}") for value in values] for values in distances(course, known)]
        facts = {"model": name, "dtype": dtype, "optimizer": optimizer, "rate": rate, "steps": steps}
        cost = course.seconds / eager.seconds
        return {
            **facts,
            "resolution": known.resolution,
            "what": what,
            "run": run,
            "repeat": repeat,
            "cost": round(cost, 2),
            "distances": apart,
        }

    for number in range(1, 5 if planted else 5 + FURTHER):
        row = line("noisy" if number < 5 else "alarm", f"noisy {number}", runs.run(f"noisy {number}"))
        noisy += [row["distances"]] if number < 5 else []
        yield row

    def all_of(what: str, run: str, variant: Variant) -> Iterator[dict[str, Any]]:
        row = line(what, run, runs.run(run, variant))
        yield row
        if judge([row["distances"]], noisy, steps, known.resolution).step:
            yield from (line(what, run, runs.run(run, variant, n), n) for n in REPEATS)

    for fault, plant in FAULTS.items():
        if plant in planted:
            plant(variant := bench.variant())
            yield from all_of("fault", fault, variant)
    for control, (change, surroundings) in {} if planted else CONTROLS.items():
        if change(variant := bench.variant(), job):
            variant.remember()
            with surroundings():
                yield from all_of("right", control, variant)
    for compiler in job.candidates if not planted and (optimizer, rate) == ("none", 1e-3) else ():
        session.prepare(compiler)
        yield from all_of("right", compiler, session._variants[compiler])  # noqa: SLF001


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Of each kind of run: how many there are, and how many are outside."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["dtype"], row["optimizer"], row["rate"]), []).append(row)
    counts: dict[Any, list[Any]] = {}
    for group in groups.values():
        noisy, further = ([r["distances"] for r in group if r["what"] == what] for what in ("noisy", "alarm"))
        first = group[0]
        for row in group:
            if row["what"] == "noisy" or row["repeat"]:
                continue
            own = [r["distances"] for r in group if r["run"] == row["run"]]
            if row["what"] == "alarm":
                place = further.index(row["distances"])
                own = (further * 2)[place : place + 3]
            verdict = judge(own, noisy, first["steps"], first["resolution"])
            what = "further noisy eager" if row["what"] == "alarm" else row["run"]
            counts.setdefault((row["what"], what, first["dtype"]), []).append((verdict, len(own)))
    shown = []
    for (kind, what, dtype), verdicts in sorted(counts.items()):
        outside = [verdict for verdict, _ in verdicts if verdict.step]
        low, high = wilson(len(outside), len(verdicts))
        steps = ", ".join(str(verdict.step) for verdict in outside[:4])
        largest = max(verdict.ratio for verdict, _ in verdicts)
        shown.append(
            (
                kind,
                what,
                dtype,
                len(verdicts),
                len(outside),
                f"{low:.1%} to {high:.1%}",
                steps,
                f"{largest:.3g}",
            )
        )
    heads = ("kind", "run", "precision", "n", "outside", "95 % interval", "from step", "largest ratio")
    return str(tabulate(shown, headers=heads, tablefmt="github"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no model after this time")
    parser.add_argument("--keep", type=Path, required=True, help="the file of runs; continues where it ends")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    cells = [
        *PLANTED,
        *((name, *setting, ()) for setting in SETTINGS for name in MODELS if name != "dropout"),
    ]
    begun = time.monotonic()
    rows = [json.loads(row) for row in options.keep.read_text().splitlines()] if options.keep.exists() else []
    done = {(r["model"], r["dtype"], r["optimizer"], r["rate"]) for r in rows}
    for cell in cells:
        if cell[:-1] in done or time.monotonic() - begun > 60 * options.minutes:
            continue
        new = list(lines(*cell))
        rows += new
        print(*cell[:-1], len(new), file=sys.stderr, flush=True)
        with options.keep.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
    print(table(rows))


if __name__ == "__main__":
    main()
