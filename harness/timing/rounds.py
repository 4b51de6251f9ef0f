"""The rounds of a session, with consecutive numbers and counts of compilations."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Generator, Mapping

import torch

from harness.counters import (
    cudagraphs_changed,
    frames_given_up,
    graphs_compiled,
    latest_cudagraph_skip,
    latest_recompilation,
)
from harness.devices import of
from harness.schema import BASELINE, Protocol, Round
from harness.timing.measure import Instruments, LapClock, measure_round, quiet_collector, round_order
from harness.timing.step import Variant, seed_everything

QUIET_S = 0.005
"""Pause before a turn: the threads of another worker's step spin for a millisecond or two after it."""

MOST_AGAIN = 3
"""How often in a row a round is repeated because the device lowered its clock in a sample of it."""
RECOVERY_S = 0.05

Variants = Mapping[str, Variant]


class Recompilations:
    """Graphs compiled during the timed rounds, by variant; there should be none.

    Frames that Dynamo gave up on count in every later batch of rounds.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}  # torch's latest reason, by variant
        self._compiled: dict[str, int] = {}
        self._given_up: dict[str, int] = {}
        self._running = ""
        self._seen = (0, 0)

    def start(self) -> None:
        """Resets the counts, except the counts of frames that Dynamo gave up on."""
        self.runs("")
        self._compiled.clear()

    def runs(self, variant: str) -> None:
        """``variant`` runs next ("": none). Compilations since the last call belong to the previous one."""
        now = graphs_compiled() + cudagraphs_changed(), frames_given_up()
        for events, count, before in zip((self._compiled, self._given_up), now, self._seen, strict=True):
            if self._running and count != before:
                events[self._running] = events.get(self._running, 0) + count - before
                self.reasons[self._running] = latest_recompilation() or latest_cudagraph_skip()
        self._running, self._seen = variant, now

    def counts(self) -> dict[str, int]:
        """Variant -> number of graphs; {} if nothing was compiled."""
        return {**self._given_up, **self._compiled}


class Rounds:
    """``announce(phase, variant)`` is called before each sample, outside the timed part."""

    def __init__(
        self, protocol: Protocol, device: torch.device, announce: Callable[[str, str], None]
    ) -> None:
        self._protocol = protocol
        self._device = device
        self._synchronize = of(device).synchronize
        self._announce = announce
        self.done = 0
        # called after each sample with its variant; whether the device was throttled in it
        self.between: list[Callable[[str], bool]] = []
        self.throttled = 0  # rounds that were repeated, because the device was throttled
        self.look: Callable[[Variant, object, int], None] = lambda *_: None  # after it
        self.recompilations = Recompilations()

    def endless(self, variants: Variants, iterations: int, phase: str) -> Generator[Round, None, None]:
        """Rounds without end, with garbage collection off until the generator is closed."""
        laps = LapClock(time.perf_counter, self._synchronize)
        steps = {name: variant.timed(laps) for name, variant in variants.items()}

        ran, throttled = "", False

        def begins(variant: str) -> None:
            """The sample before has ended, and ``variant`` runs next."""
            nonlocal ran, throttled
            self.recompilations.runs(variant)
            self._announce(phase, variant)
            for read in tuple(self.between) if ran else ():  # before the first sample the device was idle
                throttled = read(ran) or throttled
            ran = variant

        def announce(variant: str) -> None:
            begins(variant)
            variants[variant].rewind()

        instruments = Instruments(
            clock=time.perf_counter,
            synchronize=self._synchronize,
            reseed=lambda: seed_everything(self._protocol.seed),
            minor_faults=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            announce=announce,
            prefill_s=laps.take,
            look=lambda name, result: self.look(variants[name], result, iterations),
        )
        compiled_before = phase == "warm up" and self.done == 0  # compilation leaves much garbage
        again = 0
        with quiet_collector(thorough=compiled_before) as collect:
            while True:
                collect()
                # the last warm-up round may count as timed, and the next round has its reverse
                order = round_order(tuple(steps), self._protocol, self.done if phase == "measure" else 0)
                timed = measure_round(steps, order, iterations, instruments)
                self.done += 1
                begins(BASELINE)  # attributes compilations to the last variant of the round
                ran, repeat, throttled = "", throttled and again < MOST_AGAIN, False
                if repeat:
                    again, self.done, self.throttled = again + 1, self.done - 1, self.throttled + 1
                    time.sleep(RECOVERY_S)
                    continue
                again = 0
                yield timed

    def lead_in(self, variants: Variants, iterations: int) -> None:
        """One untimed sample, so that the first timed sample does not follow a pause.

        After a pause, a busy machine favors this process (10 to 20 % on samples of 15 to 50 ms), and on a
        quiet machine its caches are cold. The variant is random, as in uninterrupted rounds.
        """
        name = round_order(tuple(variants), self._protocol, self.done)[-1]
        variant = variants[name]
        self.recompilations.runs(name)
        self._announce("measure", name)
        if variant.program.drive is not None:
            variant.drive_with()  # without the lap clock of the timed step
        seed_everything(self._protocol.seed)
        for _ in range(iterations):
            variant.step()
        self._synchronize()


class Turns:
    """Rounds of a worker that takes turns with others, one round per turn.

    Garbage collection stays off between turns. To collect and freeze everything in each turn would put a
    tenth of a second between samples that are compared.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._open: Generator[Round, None, None] | None = None
        self._opened_for: tuple[object, ...] = ()

    def begin(self, variants: Variants, iterations: int) -> Generator[Round, None, None]:
        """The generator of rounds; take one. Before, it waits for other workers' threads and leads in."""
        asked = (tuple(variants), iterations)
        if self._open is None or self._opened_for != asked:
            self.close()
            self._open = self._rounds.endless(variants, iterations, "measure")
            self._opened_for = asked
        time.sleep(QUIET_S)
        self._rounds.lead_in(variants, iterations)
        return self._open

    def close(self) -> None:
        """Turns garbage collection on again."""
        if self._open is not None:
            self._open.close()
            self._open = None
