"""What interleaving and pairing gain: a step timed against itself in sequence, alternating, in random order.

    python benchmarks/pairing.py results/pairing-cpu --minutes 8    # measures, then prints and draws
    python benchmarks/pairing.py results/pairing-cpu                # from the samples that are there

Eager against eager of three small models (training, float32, two examples a step), so every difference is a
false one. A block is 30 pairs in one of three orders; the three orders follow each other at random:

    sequence      30 samples of the first copy, then 30 of the second
    alternating   first, second, first, second...
    random        each pair in an order drawn anew: what torchduet does

Samples are taken as a worker takes them: ``harness.timing.measure``, as many steps in each as last 10 ms, the
worker's settings of malloc. ``samples.jsonl`` holds them all, in measured order; ``pairing.png`` the picture.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
    from benchmarks.pairing_tables import show

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


if __name__ == "__main__":
    main()
