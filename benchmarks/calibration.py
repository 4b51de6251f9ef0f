"""Whether the verdicts hold: simulated noises through the program's own decisions.

    python benchmarks/calibration.py                          # 1,500 repetitions a cell
    python benchmarks/calibration.py --repetitions 200        # a quick look
    python benchmarks/calibration.py --only independent --only dependent

Every repetition draws the log ratio of a round, d, from a noise, asks ``runner.engine.stopping.decide`` after
every batch whether to go on, and judges what it has with ``runner.analysis.verdicts.decision``: what the
program does, without the steps. p stands for q (a family of one).

- *coverage*: the share of 95 % intervals that hold the true speedup of all processes;
- *false*: the share of *faster* and *slower* where the truth is not beyond the threshold;
- *power*: the share of *faster* where it is; *same* and *unsteady*: the shares of these verdicts;
- *rounds*, *processes*: the mean number of each, which is the cost.

tau is the standard deviation between processes; "as" the candidate whose assumed tau the interval has.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - the project need not be installed
from harness.schema import Protocol  # noqa: E402
from runner.analysis.results import PairedEstimate  # noqa: E402
from runner.analysis.verdicts import Limits, Verdict  # noqa: E402
from runner.analysis.verdicts.between import assumed_tau  # noqa: E402
from runner.analysis.verdicts.decision import judged, pool_of, spread_of, verdict  # noqa: E402
from runner.engine.stopping import decide, more_processes  # noqa: E402

Floats = NDArray[np.float64]
Generator = np.random.Generator
Noise = Callable[[Generator, int], Floats]
"""``noise(rng, n)``: d of n rounds of one process, about 0."""

LONGEST = 400  # rounds of a process that a noise is drawn for
PROTOCOL = Protocol()
ROUND_S = 0.1  # of simulated time, so that the time limit of a job counts
PREPARED_S = 8.0  # before the rounds of a later process of ``auto``, which has those that are worth it


# -- noises ----------------------------------------------------------------------------------------


def normal(sigma: float) -> Noise:
    return lambda rng, n: rng.normal(0, sigma, n)


def heavy(sigma: float) -> Noise:
    """Student's t with 3 degrees of freedom, of this standard deviation."""
    return lambda rng, n: np.asarray(sigma / math.sqrt(3) * rng.standard_t(3, n))


def autoregressive(r: float, sigma: float) -> Noise:
    """AR(1) with this stationary standard deviation."""

    def drawn(rng: Generator, n: int) -> Floats:
        noise: Floats = rng.normal(0, sigma, n)
        for i in range(1, n):
            noise[i] = r * noise[i - 1] + math.sqrt(1 - r * r) * noise[i]
        return noise

    return drawn


def two_regimes(distance: float, switch: float, sigma: float) -> Noise:
    """Rounds lie about +-distance / 2 and change sides with the probability ``switch``."""

    def drawn(rng: Generator, n: int) -> Floats:
        side = rng.choice([-1.0, 1.0]) * np.cumprod(np.where(rng.random(n) < switch, -1.0, 1.0))
        return np.asarray(side * distance / 2 + rng.normal(0, sigma, n))

    return drawn


def settling(size: float, rounds: float, sigma: float) -> Noise:
    return lambda rng, n: np.asarray(size * np.exp(-np.arange(n) / rounds) + rng.normal(0, sigma, n))


def drifting(size: float, rounds: int, sigma: float) -> Noise:
    """From -size to size over so many rounds, and back; forth or back first."""

    def drawn(rng: Generator, n: int) -> Floats:
        saw = 2 * np.abs((np.arange(n) / rounds) % 2 - 1) - 1
        return np.asarray(rng.choice([-1.0, 1.0]) * size * saw + rng.normal(0, sigma, n))

    return drawn


# -- one measurement ---------------------------------------------------------------------------------


As = tuple[str, str]
"""The kind and the mode whose tau is assumed."""
AS_INDUCTOR, TRAINED, CONTROL = ("inductor", "inference"), ("inductor", "training"), ("eager", "training")
AS = {AS_INDUCTOR: "as inductor", TRAINED: "as inductor in training", CONTROL: "as eager in training"}


@dataclass(frozen=True)
class Cell:
    """One row of a table. ``processes``: 0 is ``auto``."""

    name: str
    noise: Noise
    truth: float = 1.0
    tau: float = 0.0
    assumed: As = AS_INDUCTOR
    _: KW_ONLY
    processes: int = 1
    models: int = 1  # of the run, whose variance between processes is pooled
    spread: tuple[float, ...] = ()  # tau of each model in turn, instead of ``tau``

    def tau_of(self, model: int) -> float:
        return self.spread[model % len(self.spread)] if self.spread else self.tau


def one_process(rng: Generator, cell: Cell, tau: float, assumed: float, prepared_s: float = 0.0) -> Floats:
    """d of the rounds that the program would time in one process. Of a job, a candidate leaves them alone."""
    d = math.log(cell.truth) + rng.normal(0, tau) + cell.noise(rng, LONGEST)
    protocol, n, more = Protocol(processes=cell.processes), 0, 1
    while more:
        pairs = {"x": (np.exp(d[:n]), np.ones(n))}
        more = decide(protocol, pairs, ROUND_S * n, tau={"x": assumed}, prepared_s=prepared_s).rounds
        n += more
    return d[:n]


def measured(rng: Generator, cell: Cell, model: int, assumed: float) -> list[Floats]:
    tau = cell.tau_of(model)
    done = [one_process(rng, cell, tau, assumed) for _ in range(cell.processes or 1)]
    while cell.processes == 0 and more_processes(PROTOCOL, judged(*columns(done), assumed)):
        done.append(one_process(rng, cell, tau, assumed, PREPARED_S))
    return done


def columns(parts: Sequence[Floats]) -> tuple[Floats, Floats, tuple[int, ...]]:
    """The times of both sides, and the number of rounds of each process."""
    whole = np.concatenate(parts)
    return np.exp(whole), np.ones(whole.size), tuple(part.size for part in parts)


def simulate(cell: Cell, repetitions: int) -> list[tuple[PairedEstimate, int]]:
    """Estimate and number of processes of so many measurements, in runs of ``cell.models`` models each."""
    rng, assumed = np.random.default_rng(20261122), assumed_tau(*cell.assumed)
    measurements: list[tuple[PairedEstimate, int]] = []
    while len(measurements) < repetitions:
        run = [measured(rng, cell, model, assumed) for model in range(cell.models)]
        # what the models tell about each other, as in runner.analysis.ratios.estimates_of
        spreads = [spread for parts in run if (spread := spread_of(*columns(parts))) is not None]
        pool = pool_of(spreads, assumed) if spreads else None
        measurements += [(judged(*columns(parts), assumed, pool), len(parts)) for parts in run]
    return measurements


# -- the tables ----------------------------------------------------------------------------------------

THRESHOLD = 1 + PROTOCOL.noise_threshold
MIXED = (0.0, 0.004, 0.005, 0.006, 0.009, 0.011, 0.013, 0.016, 0.018, 0.026)
"""tau of ten models, spread as those of compilers in inference in results/processes-cpu."""


def tables() -> dict[str, list[Cell]]:
    return {
        "independent": [
            Cell(f"{name}, tau {100 * tau:g} %, true {truth:g}, {AS[as_]}", noise, truth, tau, as_)
            for as_ in (AS_INDUCTOR, TRAINED)
            for truth in (1.0, THRESHOLD)
            for tau in (0.0, assumed_tau(*as_))
            for name, noise in (
                *((f"normal {100 * sigma:g} %", normal(sigma)) for sigma in (0.02, 0.03, 0.05, 0.08)),
                ("Student t 5 %", heavy(0.05)),
            )
        ],
        "dependent": [
            Cell(f"{name}, {AS[as_]}", noise, assumed=as_)
            for as_ in (AS_INDUCTOR, TRAINED, CONTROL)
            for name, noise in (
                *((f"AR(1) {r:g}, 5 %", autoregressive(r, 0.05)) for r in (0.3, 0.5, 0.8)),
                ("AR(1) 0.8, 2 %", autoregressive(0.8, 0.02)),
                *((f"regimes 6 % apart, switch {s:g}", two_regimes(0.06, s, 0.02)) for s in (0.5, 0.1, 0.02)),
                ("settling 5 % exp(-r / 10), 2 %", settling(0.05, 10, 0.02)),
                ("drift +-3 % over 100 rounds, 2 %", drifting(0.03, 100, 0.02)),
                ("drift +-3 % over 100 rounds, 3 %", drifting(0.03, 100, 0.03)),
            )
        ],
        "power": [
            Cell(
                f"true {truth:g}, sigma {100 * s:g} %, tau {100 * tau:g} %, {AS[as_]}",
                *(normal(s), truth, tau, as_),
            )
            for as_ in (AS_INDUCTOR, TRAINED)
            for tau in (0.0, assumed_tau(*as_))
            for truth, s in ((1.04, 0.03), (1.06, 0.03), (1.06, 0.05))
        ],
        "processes": [
            Cell(
                f"{count} processes, {name}, sigma 3 %, true {truth:g}, models in the run: {models}",
                *(normal(0.03), truth, tau),
                processes=count,
                models=models,
                spread=spread,
            )
            for count, models in ((3, 10), (3, 1), (5, 10))
            for truth in (1.0, THRESHOLD)
            for name, tau, spread in (
                ("tau 1.1 %", 0.011, ()),
                ("tau 2.3 %", 0.023, ()),
                *((("tau 0 to 2.6 %", 0.0, MIXED),) if models > 1 else ()),
            )
        ],
        "auto": [
            Cell(
                f"auto, true {truth:g}, sigma 3 %, tau {100 * tau:g} %, {AS[as_]}",
                *(normal(0.03), truth, tau, as_),
                processes=0,
            )
            for truth, tau, as_ in (
                *((1.0, tau, AS_INDUCTOR) for tau in (0.0025, 0.011, 0.023)),
                (1.0, 0.006, TRAINED),
                (1.0, 0.0025, CONTROL),
                *((THRESHOLD, tau, AS_INDUCTOR) for tau in (0.0025, 0.011, 0.023)),
                (THRESHOLD, 0.006, TRAINED),
                *((1.06, tau, AS_INDUCTOR) for tau in (0.0025, 0.011)),
                (1.3, 0.011, AS_INDUCTOR),
            )
        ],
    }


SHOWN = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNSTEADY)
HEADERS = ("noise of d", "coverage %", "false %", *(f"{v.value} %" for v in SHOWN), "rounds", "processes")


def print_table(title: str, cells: Sequence[Cell], repetitions: int) -> None:
    rows = []
    for cell in cells:
        estimates, processes = zip(*simulate(cell, repetitions), strict=True)
        verdicts = Counter(verdict(e, e.p_value, Limits.of(PROTOCOL)) for e in estimates)
        shares = [100 * verdicts[name] / len(estimates) for name in SHOWN]
        false = shares[1] + (0 if cell.truth > THRESHOLD + 1e-9 else shares[0])
        covered = 100 * np.mean([estimate.within(cell.truth) for estimate in estimates])
        rounds = np.mean([estimate.n for estimate in estimates])
        rows.append((cell.name, covered, false, *shares, rounds, np.mean(processes)))
        print(f"{title}: {cell.name}", file=sys.stderr, flush=True)
    print(f"\n{title}, {repetitions} repetitions a row\n")
    print(tabulate(rows, headers=HEADERS, floatfmt=".1f"), flush=True)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=1500)
    parser.add_argument("--only", action="append", choices=tuple(tables()), help="these tables only")
    options = parser.parse_args()
    for title, cells in tables().items():
        if not options.only or title in options.only:
            print_table(title, cells, options.repetitions)


if __name__ == "__main__":
    main()
