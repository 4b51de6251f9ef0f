"""Judges training runs of which it is known whether they are right: docs/NUMERICS.md has the figures.

    python benchmarks/trajectories.py --minutes 30 --keep results/trajectories/runs.jsonl

*alarm*: on ten small models, further noisy eagers are judged against four others; *right*: other kernels,
threads, memory formats and compilers; *fault*: planted in GPT_150k, NanoGPT_addition and a GPT with dropout.
A line of the file has the distances of one run, so that another factor needs no run; --minutes 0: the table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import nn
from torch.nn import functional as f

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from benchmarks.controls import CONTROLS  # noqa: E402
from harness.loading.suite_files import load_suite  # noqa: E402
from harness.numerics.trajectory import Trajectories  # noqa: E402
from harness.recorded.numerics import NOISY, REPEATS  # noqa: E402
from harness.schema import Case, Extras, Job, Mode, Protocol, Setting, Trajectory  # noqa: E402
from harness.timing.step import Variant  # noqa: E402
from harness.worker.session import Session  # noqa: E402
from harness.workload import Workload  # noqa: E402
from runner.analysis.statistics import wilson  # noqa: E402
from runner.analysis.verdicts.trajectory import distances, judge  # noqa: E402
from suites.models.additions import additions  # noqa: E402
from suites.models.nano_gpt import NanoGPT  # noqa: E402
from suites.models.next_symbol import MLP, every_symbol_loss, last_symbol_loss  # noqa: E402
from suites.models.tl_transformer import TLTransformer  # noqa: E402

FURTHER = 12  # noisy eagers; two others are the repeats of each
USUAL = ("none", 1e-3)  # AdamW
SETTINGS = (("float32", *USUAL), ("float32", "sgd", 1e-2), ("float32", "none", 1e-2), ("bfloat16", *USUAL))


class Images(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.other, self.head = norm(8), norm(8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = f.relu(self.norm(self.first(x)))
        return self.head((x + f.relu(self.other(self.second(x)))).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.symbols, self.cells, self.head = nn.Embedding(16, 16), kind(16, 24), nn.Linear(24, 16)

    def forward(self, x: Any) -> Any:
        return self.head(self.cells(self.symbols(x))[0])


def dense(kind: Any, *more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), kind(), *more, nn.Linear(64, 64), kind(), nn.Linear(64, 4))


def text(step: int, *, last: bool = False) -> tuple[Any, Any, Any]:
    symbols = additions(16, 13, step)
    return (symbols[:, :-1].contiguous(),), {}, symbols[:, -1 if last else slice(1, None)].contiguous()


def images(step: int) -> tuple[Any, Any, Any]:
    classes, generator = torch.sin(torch.arange(960.0)).view(5, 3, 8, 8), torch.Generator().manual_seed(step)
    target = torch.randint(5, (16,), generator=generator)
    return (classes[target] + torch.randn(16, 3, 8, 8, generator=generator),), {}, target


def values(step: int) -> tuple[Any, Any, Any]:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))
    return (x,), {}, torch.sin(x[:, :4]) * x[:, 4:8]


GPT = partial(NanoGPT, vocab_size=16, block_size=12, n_layer=1, n_head=2, n_embd=16)
SMALL_MLP = partial(MLP, vocab_size=16, input_len=12, n_embd=8, n_hidden=64)
EINSUM = partial(TLTransformer, vocab_size=16, block_size=12, n_layer=1, n_head=2, d_model=16)
MODELS: Mapping[str, tuple[Callable[[], Any], Any, Any]] = {
    "tanh": (partial(dense, nn.Tanh), f.mse_loss, values),
    "relu": (partial(dense, nn.ReLU), f.mse_loss, values),
    "layer norm": (lambda: dense(nn.GELU, nn.LayerNorm(64)), f.smooth_l1_loss, values),
    "batch norm": (partial(Images, nn.BatchNorm2d), f.cross_entropy, images),
    "group norm": (partial(Images, partial(nn.GroupNorm, 2)), f.cross_entropy, images),
    "LSTM": (partial(Recurrent, partial(nn.LSTM, batch_first=True)), every_symbol_loss, text),
    "GRU": (partial(Recurrent, partial(nn.GRU, batch_first=True)), every_symbol_loss, text),
    "GPT": (GPT, every_symbol_loss, text),
    "einsum": (partial(EINSUM, d_head=8, d_mlp=32), every_symbol_loss, text),
    "MLP": (SMALL_MLP, last_symbol_loss, partial(text, last=True)),
    "dropout": (partial(GPT, dropout=0.1), every_symbol_loss, text),
}


def gradient(variant: Variant) -> None:
    weights = [weight for weight in variant.program.module.parameters() if weight.dim() > 1]
    hook: Any = weights[len(weights) // 2].register_hook
    hook(lambda value: value * (1 + 1e-4))


def rate(variant: Variant) -> None:
    begin: Any = variant.training
    setattr(variant, "training", lambda *given: begin(*given[:2], 1.01 * given[2]))  # noqa: B010


def state(variant: Variant) -> None:
    def lowered(*given: Any) -> Callable[[], object]:
        update: Any = begin(*given)
        kept = [tensor for _, tensor in update.state() if tensor.dim()]
        return lambda: (update(), [tensor.copy_(tensor.bfloat16()) for tensor in kept])

    begin = variant.training
    setattr(variant, "training", lowered)  # noqa: B010


def mask(variant: Variant) -> None:
    variant.program.module.register_forward_pre_hook(lambda *_: torch.manual_seed(0) and None)


FAULTS: Mapping[Callable[[Variant], None], str] = {
    gradient: "gradient of a weight times 1.0001",
    rate: "learning rate 1 % off",
    state: "optimizer's state in bfloat16",
    mask: "dropout mask reused",
}
PLANTED: tuple[Any, ...] = (
    *((name, "float32", *USUAL, (rate, state)) for name in ("NanoGPT_addition", "GPT_150k")),
    ("dropout", "float32", *USUAL, (mask,)),
    *((name, "float32", "sgd", 3e-2, (gradient, rate)) for name in ("NanoGPT_addition", "GPT_150k")),
)


def rows_of(name: str, dtype: str, optimizer: str, lr: float, planted: Any) -> Iterator[dict[str, Any]]:
    """The distances of each run. A right or wrong run that is outside is repeated."""
    steps, suite = 200 if planted else 100, load_suite("tiny_gpt")
    cases = suite.cases(Setting(mode=Mode.TRAINING, device_type="cpu", scale="tiny"))
    case = next((case for case in cases if case.name == name), replace(cases[0], name=name, suite="own"))
    settings: Any = {"accuracy": False, "performance": False, "keep_dropout": name == "dropout"}
    protocol = Protocol(threads=1, optimizer=optimizer, **settings)
    extras = Extras(trajectory=steps, learning_rate=lr)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=(), protocol=protocol, extras=extras)

    def build(_: Case) -> Workload:
        make, loss, batches = MODELS[name]
        args, _, target = batches(1 << 20)
        return Workload(module=make(), args=args, target=target, loss=loss, batches=batches)

    session = Session(job, lambda _: None, build if name in MODELS else suite.build)
    session.open()
    bench, about = session._bench, dict[str, Any](optimizer=optimizer, steps=steps)  # noqa: SLF001
    runs = Trajectories(job, bench, lambda _: None, 0.0)
    eager, facts = runs.run("eager"), runs.facts()
    more: Any = {"data": "", "places": facts["places"], "resolution": facts["resolution"]}
    known = Trajectory(**about, learning_rate=lr, eager=eager, courses=(), candidate=eager, **more)
    about |= {"model": name, "dtype": dtype, "rate": lr, "resolution": known.resolution}

    def row(what: str, run: str, variant: Variant | None = None, repeat: int = 0) -> dict[str, Any]:
        course = runs.run(run, variant, repeat)
        apart = [[float(f"{value:.2g}") for value in each] for each in distances(course, known)]
        cost = round(course.seconds / eager.seconds, 2)
        return {**about, "what": what, "run": run, "repeat": repeat, "cost": cost, "distances": apart}

    noisy = [row("noisy", run) for run in NOISY]
    yield from noisy
    for number in range(FURTHER if not planted else 0):
        yield row("alarm", f"noisy {5 + number}")

    def all_of(what: str, run: str, variant: Variant) -> Iterator[dict[str, Any]]:
        yield (first := row(what, run, variant))
        limits = [each["distances"] for each in noisy]
        if judge([first["distances"]], limits, steps, known.resolution).step:
            yield from (row(what, run, variant, repeat) for repeat in REPEATS)

    for plant in planted:
        plant(variant := bench.variant())
        yield from all_of("fault", FAULTS[plant], variant)
    for control, (change, surroundings) in {} if planted else CONTROLS.items():
        if change(variant := bench.variant(), job):
            variant.remember()
            with surroundings(), torch.backends.nnpack.flags(enabled=False):  # less precise: NUMERICS.md
                yield from all_of("right", control, variant)
    for compiler in ("aot_eager", "inductor") if not planted and (optimizer, lr) == USUAL else ():
        session.prepare(compiler)
        yield from all_of("right", compiler, session._variants[compiler])  # noqa: SLF001


def cell_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["dtype"], row["optimizer"], row["rate"]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Of each kind of run: how many there are, and how many are outside."""
    counts: dict[Any, list[Any]] = {}
    for row in rows:
        cell = [other for other in rows if cell_of(other) == cell_of(row)]
        noisy, further = ([r["distances"] for r in cell if r["what"] == what] for what in ("noisy", "alarm"))
        if row["what"] == "noisy" or row["repeat"]:
            continue
        own, run = [r["distances"] for r in cell if r["run"] == row["run"]], row["run"]
        if row["what"] == "alarm":
            place, run = further.index(row["distances"]), "further noisy eager"
            own = (further * 2)[place : place + 3]
        verdict = judge(own, noisy, row["steps"], row["resolution"])
        counts.setdefault((row["what"], run, row["dtype"]), []).append((verdict, row["model"]))
    shown = []
    for key, verdicts in sorted(counts.items()):
        outside = [f"{verdict.step} ({model})" for verdict, model in verdicts if verdict.step]
        low, high = wilson(len(outside), len(verdicts))
        largest = max(verdict.ratio for verdict, _ in verdicts)
        shares = f"{low:.1%} to {high:.1%}"
        shown.append((*key, len(verdicts), len(outside), shares, f"{largest:.3g}", ", ".join(outside[:4])))
    heads = ("kind", "run", "precision", "n", "outside", "95 % interval", "largest ratio", "from step")
    return str(tabulate(shown, headers=heads, tablefmt="github"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no model after this time")
    parser.add_argument("--keep", type=Path, required=True, help="the file of runs; continues where it ends")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    small = [(name, *setting, ()) for setting in SETTINGS for name in MODELS if name != "dropout"]
    begun = time.monotonic()
    rows = [json.loads(row) for row in options.keep.read_text().splitlines()] if options.keep.exists() else []
    done = {*map(cell_of, rows)}
    for cell in (*PLANTED, *small):
        if cell[:-1] in done or time.monotonic() - begun > 60 * options.minutes:
            continue
        new = list(rows_of(*cell))
        rows += new
        print(*cell[:-1], len(new), file=sys.stderr, flush=True)
        with options.keep.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
    print(table(rows))


if __name__ == "__main__":
    main()
