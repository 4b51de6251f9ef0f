"""What interleaving and pairing gain: a step timed against itself in sequence, alternating, in random order.

    python results/pairing-cpu/how.py results/pairing-cpu --minutes 8    # measures, then prints and draws
    python results/pairing-cpu/how.py results/pairing-cpu                # from the samples that are there

Eager against eager of three small models (training, float32, two examples a step), so every difference is a
false one. A block is 30 pairs in one of three orders; the three orders follow each other at random:

    sequence      30 samples of the first copy, then 30 of the second
    alternating   first, second, first, second...
    random        each pair in an order drawn anew: what torchduet does

Samples are taken as a worker takes them: ``harness.timing.measure``, as many steps in each as last 10 ms, the
worker's settings of malloc. ``samples.jsonl`` holds them all, in measured order; ``pairing.png`` the picture.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402
from harness.schema import Mode, Protocol, Round, Setting  # noqa: E402
from harness.timing.measure import (  # noqa: E402
    Instruments,
    enough_iterations,
    measure_round,
    quiet_collector,
    round_order,
)
from runner.analysis.statistics import paired_speedup  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("MLP_addition", "GPT_150k", "TLTransformer_shakespeare_64")
DTYPE, SCALE, SEED, MIN_SAMPLE_S = "float32", "tiny", 1337, 0.01
ORDERS = ("sequence", "alternating", "random")
SIDES = ("first", "second")
PAIRS = 30
UNTIMED = 2  # pairs before each block: another model ran before it
SAMPLES, ABOUT = "samples.jsonl", "environment.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """30 pairs. ``seconds`` of one step, and whose they are, as they were measured."""

    model: str
    repetition: int
    order: str
    iterations: int
    sides: tuple[int, ...]  # 0 or 1: which of the two copies
    seconds: tuple[float, ...]

    def columns(self) -> tuple[list[float], list[float]]:
        """The samples of both copies, each in its order: the n-th of one goes with the n-th of the other."""
        first, second = (
            [s for side, s in zip(self.sides, self.seconds, strict=True) if side == wanted]
            for wanted in (0, 1)
        )
        return first, second


Sample = Callable[[tuple[str, ...]], Round]
"""Times these copies once each, in this order."""


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path, help="where samples and picture are, or are to be")
    parser.add_argument("--minutes", type=float, default=8.0, help="how long to measure")
    options = parser.parse_args()
    path = options.folder / SAMPLES
    if not path.exists():
        _as_a_worker()
        options.folder.mkdir(parents=True, exist_ok=True)
        measure(path, options.minutes * 60)
    show(read(path), options.folder / "pairing.png")


def _as_a_worker() -> None:
    """Starts this program again with a worker's settings of malloc, unless it already has them."""
    from harness.worker.limits import GLIBC_SETTINGS

    if any(os.environ.get(name) != value for name, value in GLIBC_SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **GLIBC_SETTINGS})  # noqa: S606


def read(path: Path) -> list[Block]:
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [
        Block(**{**line, "sides": tuple(line["sides"]), "seconds": tuple(line["seconds"])}) for line in lines
    ]


def measure(path: Path, seconds: float) -> None:
    """Blocks of every model in every order, until the time is over; written as they come."""
    import torch

    from harness.precision import settle
    from harness.worker.environment import describe

    device = torch.device("cpu")
    settle(device)
    samplers = {model: sampler(model) for model in MODELS}
    steps = {model: warmed(sample) for model, sample in samplers.items()}
    (path.parent / ABOUT).write_text(json.dumps(describe(device), indent=1) + "\n")
    dice = random.Random(SEED)
    began, repetition = time.perf_counter(), 0
    with path.open("w") as file:
        while time.perf_counter() - began < seconds:
            blocks = [(model, order) for model in MODELS for order in ORDERS]
            dice.shuffle(blocks)
            for model, order in blocks:
                iterations = steps[model]
                block = measured(model, order, repetition, iterations, samplers[model](iterations))
                file.write(json.dumps(asdict(block)) + "\n")
                file.flush()
            repetition += 1
            print(f"{repetition} repetitions, {time.perf_counter() - began:.0f} s", file=sys.stderr)


def sampler(name: str) -> Callable[[int], Sample]:
    """For a number of steps per sample: the two functions that time an eager copy of that model each."""
    import resource

    import torch

    from harness.loading.suite_files import load_suite
    from harness.precision import precision
    from harness.timing.step import Variant, replica, seed_everything

    device, kind, suite = torch.device("cpu"), precision(DTYPE, "cpu"), load_suite("tiny_gpt")
    offered = suite.cases(Setting(mode=Mode.TRAINING, device_type="cpu", scale=SCALE))
    seed_everything(SEED)
    workload = suite.build(next(case for case in offered if case.name == name))
    copies = [Variant(replica(workload, device, kind.cast, training=True), kind, device) for _ in SIDES]
    steps = {side: copy.step for side, copy in zip(SIDES, copies, strict=True)}
    instruments = Instruments(
        clock=time.perf_counter,
        synchronize=lambda: None,
        reseed=lambda: seed_everything(SEED),
        minor_faults=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
        announce=lambda _: None,
    )
    return lambda iterations: lambda order: measure_round(steps, order, iterations, instruments)


def warmed(sample: Callable[[int], Sample]) -> int:
    """Warms both copies up; the steps of a sample, as a session has them."""
    history = [sample(1)(SIDES) for _ in range(6)]
    return enough_iterations(history, lambda iterations: sample(iterations)(SIDES), MIN_SAMPLE_S)


def measured(model: str, order: str, repetition: int, iterations: int, sample: Sample) -> Block:
    """One block. Garbage is collected before every second sample, as before every round of a session."""
    sides: list[int] = []
    times: list[float] = []
    with quiet_collector() as collect:
        for _ in range(UNTIMED):
            sample(SIDES)
        for group in turns(order, repetition):
            if len(sides) % 2 == 0:
                collect()
            one = sample(group)
            sides += [SIDES.index(side) for side in one.order]
            times += [float(f"{one.seconds[side]:.6g}") for side in one.order]
    return Block(
        model=model,
        repetition=repetition,
        order=order,
        iterations=iterations,
        sides=tuple(sides),
        seconds=tuple(times),
    )


def turns(order: str, repetition: int) -> Iterator[tuple[str, ...]]:
    """Which copies are timed, one after the other, until there are 30 samples of each."""
    if order == "sequence":
        for side in SIDES:
            yield from [(side,)] * PAIRS
    for index in range(PAIRS if order != "sequence" else 0):
        yield round_order(SIDES, Protocol(seed=SEED + repetition), index) if order == "random" else SIDES


# -- tables --------------------------------------------------------------------------

Floats = NDArray[np.float64]
Pairs = tuple[Floats, Floats]
"""Rows are trials, columns are pairs: the samples of the first copy and those of the second."""

ALPHA, POWER = 0.05, 0.8
EFFECTS = (0.01, 0.02, 0.05)
ROUNDS = (6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 600, 800)
TRIALS = 1000
SHORT = 10  # pairs of a part of a block
TABLE_SEED = 7


def _welch(first: Floats, second: Floats) -> Floats:
    return np.asarray(stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue)


def _mann_whitney(first: Floats, second: Floats) -> Floats:
    return np.asarray(stats.mannwhitneyu(first, second, axis=1, method="asymptotic").pvalue)


def _signed_rank(first: Floats, second: Floats) -> Floats:
    ratios = np.log(first / second)
    if first.shape[1] <= 50:
        return np.asarray(stats.wilcoxon(ratios, axis=1, method="exact").pvalue)
    return np.asarray(stats.wilcoxon(ratios, axis=1, method="approx").pvalue)


TESTS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "t-test (Welch)": _welch,
    "Mann-Whitney": _mann_whitney,
    "paired signed-rank": _signed_rank,
}


def show(blocks: Sequence[Block], picture: Path) -> None:
    """Prints every table and writes the picture."""
    from runner.reports.parts.pictures import png

    print(f"{len(blocks)} blocks of 30 pairs: {_counts(blocks)}\n")
    print("A difference found between a step and itself: its standard deviation, %\n")
    print(spreads(blocks), "\n")
    print(f"Called different (p < {ALPHA}) though it is the same step\n")
    print(false_positives(blocks), "\n")
    print("The same tests on older A/A data of this project\n")
    print(elsewhere(), "\n")
    print(f"Rounds until a true difference is found (p < {ALPHA}) in {POWER:.0%} of cases, random order\n")
    print(rounds_needed(blocks), "\n")
    picture.write_bytes(png(draw(blocks)))
    print(f"Picture: {picture}")


def _counts(blocks: Sequence[Block]) -> str:
    repetitions = {model: sum(b.model == model for b in blocks) // len(ORDERS) for model in MODELS}
    return ", ".join(f"{model} {count} of each order" for model, count in repetitions.items())


def whole(blocks: Iterable[Block]) -> Pairs:
    """A trial a block."""
    columns = [block.columns() for block in blocks]
    return np.array([first for first, _ in columns]), np.array([second for _, second in columns])


def parts(blocks: Sequence[Block]) -> Pairs:
    """Trials of 10 pairs. In sequence one a block: the last of the first copy, the first of the second."""
    first, second = whole(blocks)
    if blocks[0].order == "sequence":
        return first[:, -SHORT:], second[:, :SHORT]
    return first.reshape(-1, SHORT), second.reshape(-1, SHORT)


def _of(blocks: Iterable[Block], model: str | None = None, order: str | None = None) -> list[Block]:
    return [b for b in blocks if model in (None, b.model) and order in (None, b.order)]


# -- tables --------------------------------------------------------------------------


def differences(pairs: Pairs) -> tuple[Floats, Floats]:
    """Of each trial, the logarithm of the ratio of medians, and of the paired estimate."""
    found = [paired_speedup(first, second) for first, second in zip(*pairs, strict=True)]
    return np.log([f.speedup_of_medians for f in found]), np.log([f.speedup for f in found])


def spreads(blocks: Sequence[Block]) -> str:
    rows = []
    for model in MODELS:
        for order in ORDERS:
            mine = _of(blocks, model, order)
            medians, paired = differences(whole(mine))
            step_ms = 1e3 * float(np.median(whole(mine)[0]))
            bias = 100 * float(np.median(paired))
            numbers = (100 * float(np.std(values, ddof=1)) for values in (medians, paired))
            rows.append((model, f"{step_ms:.3g}", order, *numbers, bias, _lag_1(mine)))
    headers = ("model", "step ms", "order", "ratio of medians", "paired estimate", "median of it, %", "lag-1")
    return tabulate(rows, headers=headers, floatfmt=".2f")


def _lag_1(blocks: Sequence[Block]) -> float:
    """Autocorrelation of the log ratios within blocks: near 0 if pairs are independent."""
    first, second = whole(blocks)
    ratios = np.log(first / second)
    ratios -= ratios.mean(axis=1, keepdims=True)
    return float((ratios[:, 1:] * ratios[:, :-1]).sum() / (ratios**2).sum())


def false_positives(blocks: Sequence[Block]) -> str:
    rows = []
    for order in ORDERS:
        mine = _of(blocks, order=order)
        rows += [_false_row(order, 30, whole(mine)), _false_row(order, SHORT, parts(mine))]
    return tabulate(rows, headers=("order", "pairs", "trials", *TESTS))


def _false_row(name: str, count: int, pairs: Pairs) -> tuple[str, ...]:
    shares = [float(np.mean(test(*pairs) < ALPHA)) for test in TESTS.values()]
    return name, str(count), str(len(pairs[0])), *(f"{share:.1%}" for share in shares)


def elsewhere() -> str:
    """ResNet-18 timed against itself 1,200 times, in parts of 30; and 60 runs in processes of their own."""
    first, second = (side.reshape(-1, 30) for side in _resnet())
    later: Pairs = first[:-1], second[1:]  # 30 samples, and the 30 after them: as if timed in sequence
    control = [pairs for _, pairs in _control()]
    rows = [
        _false_row("ResNet-18, pair by pair", 30, (first, second)),
        _false_row("ResNet-18, 30 against the next 30", 30, later),
        _false_row(
            "60 A/A runs of the program",
            30,
            (np.concatenate([one for one, _ in control]), np.concatenate([other for _, other in control])),
        ),
    ]
    return tabulate(rows, headers=("data", "pairs", "trials", *TESTS))


def _resnet() -> Pairs:
    pairs: Floats = np.load(ROOT / "tests" / "data" / "aa_resnet18_4.npy")
    return pairs[:, 0], pairs[:, 1]


def _control() -> list[tuple[str, Pairs]]:
    """By model, the pairs of each of its twenty runs."""
    # line by line: these are runs of the same three jobs
    lines = (ROOT / "results" / "aa-control" / "records.jsonl").read_text().splitlines()
    found: dict[str, list[dict[str, list[float]]]] = {}
    for record in map(json.loads, lines):
        found.setdefault(record["job"]["case"]["name"], []).append(record["samples"])
    return [
        (name, (np.array([s["baseline_s"] for s in runs]), np.array([s["candidate_s"] for s in runs])))
        for name, runs in found.items()
    ]


def rounds_needed(blocks: Sequence[Block]) -> str:
    """Real pairs, drawn with replacement, the second copy's times divided by the effect."""
    sources = [("ResNet-18, file of 1,200", _resnet())]
    sources += [(f"{name}, A/A runs", pairs) for name, pairs in _control()]
    sources += [(f"{name}, here", whole(_of(blocks, name, "random"))) for name in MODELS]
    rows = []
    for source, pairs in sources:
        first, second = pairs[0].ravel(), pairs[1].ravel()
        second = second * paired_speedup(first, second).speedup  # no difference but the one put in
        spread = 100 * float(np.std(np.log(first / second)))
        for name, test in TESTS.items():
            cells = [_needed(first, second, test, effect) for effect in EFFECTS]
            rows.append((source, len(first), spread, name, *cells))
    headers = ("data", "pairs", "sd of a pair, %", "test", *(f"{effect:.0%}" for effect in EFFECTS))
    return tabulate(rows, headers=headers, floatfmt=".1f")


def _needed(first: Floats, second: Floats, test: Callable[[Floats, Floats], Floats], effect: float) -> str:
    dice = np.random.default_rng(TABLE_SEED)
    for count in ROUNDS:
        drawn = dice.integers(len(first), size=(TRIALS, count))
        one, other = first[drawn], second[drawn] / (1 + effect)
        right = np.median(np.log(one / other), axis=1) > 0
        if float(np.mean((test(one, other) < ALPHA) & right)) >= POWER:
            return str(count)
    return f"over {ROUNDS[-1]}"


# -- the picture ---------------------------------------------------------------------------


def draw(blocks: Sequence[Block]) -> Figure:
    """What each block says of a step against itself, in percent: by order, and by estimate."""
    from runner.reports.parts.axes import light_grid, new_figure
    from runner.reports.parts.pictures import plain_style

    kinds = [("sequence", 0), ("alternating", 0), ("alternating", 1), ("random", 1)]
    colors = {"sequence": "#D55E00", "alternating": "#E69F00", "random": "#0072B2"}
    labels = [
        "in sequence,\nmedians",
        "alternating,\nmedians",
        "alternating,\npaired",
        "random order,\npaired",
    ]
    dice = np.random.default_rng(TABLE_SEED)
    with plain_style():
        figure = new_figure(10.0, 3.6)
        axes: Any = figure.subplots(1, len(MODELS), sharey=True)
        for ax, model in zip(axes, MODELS, strict=True):
            ax.axhspan(-2, 2, color="#EEEEEE", zorder=0, linewidth=0)
            ax.axhline(0, color="black", linewidth=0.8, zorder=1)
            for place, (order, kind) in enumerate(kinds):
                found = 100 * np.expm1(differences(whole(_of(blocks, model, order)))[kind])
                around = place + dice.uniform(-0.18, 0.18, len(found))
                ax.plot(around, found, "o", ms=3, alpha=0.7, mew=0, color=colors[order], zorder=2)
            ax.set_xticks(range(len(kinds)), labels, fontsize=7)
            ax.set_title(model, loc="left", fontsize=9)
            ax.set_yscale("symlog", linthresh=5, linscale=2)
            light_grid(ax, "y")
        axes[0].set_ylabel("difference found between a step\nand itself, %; shaded: 2 %")
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes[0].set_yticks([-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50])
    return figure


if __name__ == "__main__":
    main()
