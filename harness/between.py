"""A session in one of several environments: its weights and inputs are those of the reference environment.

The parent's calls, beside those that every session answers:

    hand_over {path}          the reference's: writes weights, inputs and what eager made of them
    open {..., given: path}   another's: builds the model and takes them
    agree {}                  another's: holds its own eager against the reference's
    shake {path}              the reference's, where they differ: eager with shaken weights, as
                              ``harness.sensitivity`` says; agree {shaken: path} then looks again
    measure {..., iterations} steps per sample, the same in all environments
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness import parity
from harness.finish import Changed
from harness.handover import hand_over, handed_reference, read_shaken, receive, write_shaken
from harness.measure import round_order
from harness.metrics import ByVariant, observing
from harness.reference import Reference, Tensors, make_reference, rule_for
from harness.schema import Mode, Parity, Round, Scalar, TensorError
from harness.sensitivity import shaken_references
from harness.session import TOKENS, Session
from harness.step import seed_everything
from harness.workload import Workload

QUIET_S = 0.005
"""Threads that have just computed in another worker go on spinning for a millisecond or two."""

MAY_DIFFER = ("output", "buffer")
"""Kinds of tensors of which one version of a library may give more than another."""


class HandedSession(Session):
    """A session that can hand its workload over, or take one that was."""

    KEEPS = False  # in the warm-up environments do not take turns
    _given: Path | None = None
    _problem = ""
    _steady = True
    _rounds_open: Generator[Round, None, None] | None = None
    _opened_for: tuple[object, ...] = ()

    def take(self, path: Path) -> None:
        """To be called before ``open``."""
        self._given = path

    def _build(self) -> Workload:
        workload = super()._build()
        if self._given is None:
            return workload
        received = receive(self._given, workload)
        self._problem = received.problem
        return received.workload

    def hand_over(self, path: Path) -> None:
        """To be called right after ``open``: later the results of eager are gone."""
        assert self._workload is not None
        self._say("eager")
        hand_over(path, self._workload, self._reference)

    def shake(self, path: Path) -> None:
        """To be called before ``warm_up``. Writes nothing where it would say nothing."""
        self._say("eager")
        if self._reference is not None and self._training:
            shaken = shaken_references(self._reference, self._variant, self._run)
            write_shaken(path, [one.eager for one in shaken])

    def agree(self, shaken: Path | None = None) -> tuple[Parity | None, str]:
        """How this environment's eager compares with the reference's, and a note.

        None where parity is not checked. Another model than the reference's fails. ``shaken``: what the
        reference's ``shake`` wrote. Runs of this environment would not do: they share its faults.
        """
        self._say("eager")
        if self._reference is None or self._given is None:
            return None, self._problem
        rule = rule_for(
            self._job.protocol.parity, self._job.case.mode, self._precision, self._job.case.tolerance
        )
        theirs = handed_reference(self._given, rule)
        if theirs is None:
            return None, self._problem
        self._steady = theirs.can_judge and self._reference.can_judge
        if self._problem:
            return _another_model(theirs, self._problem), ""
        ours = self._ours(theirs)
        theirs, ours, note = _comparable(theirs, ours)
        others = read_shaken(shaken) if shaken is not None else []
        again = [make_reference(theirs.exact, results, results, rule) for results in others]
        return parity.compare(theirs, ours, lambda: again), note

    @property
    def can_judge(self) -> bool:
        """After ``agree``: False where eager, here or there, differs from itself too much."""
        return self._steady

    def _ours(self, theirs: Reference) -> Tensors:
        """What eager makes here. Where it generates, it goes on with the reference's tokens."""
        assert self._reference is not None
        tokens = theirs.eager.get(TOKENS)
        if self._job.case.mode is not Mode.GENERATE or tokens is None:
            return self._reference.eager
        own, self._tokens = self._tokens, tokens.to(self._device)
        try:
            return self._run(self._variant())
        finally:
            self._tokens = own

    def use_iterations(self, iterations: int) -> None:
        self._iterations = iterations

    def measure(self, rounds: int, within_s: float = math.inf) -> tuple[list[Round], dict[str, int]]:
        """As every session, but from round to round garbage collection stays as it is.

        The parent asks for one round at a time, while other environments wait for theirs: to freeze and
        collect everything each time would put a tenth of a second between samples that are compared.
        """
        asked = (tuple(self._variants), self._iterations)
        if self._rounds_open is None or self._opened_for != asked:
            self._close_rounds()
            self._rounds_open, self._opened_for = self._rounds(self._iterations, "measure"), asked
        time.sleep(QUIET_S)
        self._lead_in()
        self.recompilations.start()
        with observing("rounds", self._device, self._job.extras, self._of_rounds):
            start = time.perf_counter()
            done = [next(self._rounds_open)]
            while len(done) < rounds and time.perf_counter() - start < within_s:
                done.append(next(self._rounds_open))
        return done, self.recompilations.found()

    def _lead_in(self) -> None:
        """One sample that is not timed: who comes first after a pause is no equal of who comes second.

        On a busy machine the system favours a process that has slept (10 to 20 % on samples of 15 to 50 ms);
        on a quiet one its caches are cold. As in an ordinary session, the first follows some other variant.
        """
        name = round_order(tuple(self._variants), self._job.protocol, self._rounds_done)[-1]
        variant = self._variants[name]
        self.recompilations.runs(name)
        self._say("measure", name)
        if variant.program.drive is not None:
            variant.drive_with()  # the timed step keeps its own lap clock
        seed_everything(self._job.protocol.seed)
        for _ in range(self._iterations):
            variant.step()
        self._synchronise()

    def _close_rounds(self) -> None:
        if self._rounds_open is not None:
            self._rounds_open.close()
            self._rounds_open = None

    def warm_up(self) -> dict[str, Scalar]:
        self._close_rounds()
        return super().warm_up()

    def finish(self) -> tuple[Changed, ByVariant]:
        self._close_rounds()
        return super().finish()


def _another_model(theirs: Reference, problem: str) -> Parity:
    empty: dict[str, torch.Tensor] = {}
    found = parity.compare(replace(theirs, eager=empty), empty)
    worst = TensorError(
        name="model",
        numel=0,
        scale=0.0,
        eager_rmse=0.0,
        candidate_rmse=0.0,
        allowed=0.0,
        candidate_max=0.0,
        allowed_max=0.0,
        failure=problem,
    )
    return replace(found, tensors=1, failed=1, worst=worst)


def _comparable(theirs: Reference, ours: Tensors) -> tuple[Reference, Tensors, str]:
    """Both without outputs and buffers that only one of them has, and a note on these.

    Another version of a library may return more than it did; where nothing that both return
    is left, all of it stays and fails.
    """
    apart = {name for name in theirs.eager.keys() ^ ours.keys() if name.split(".", 1)[0] in MAY_DIFFER}
    if not apart or not any(name.startswith("output") for name in theirs.eager.keys() & ours.keys()):
        return theirs, ours, ""
    kept = {name: value for name, value in theirs.eager.items() if name not in apart}
    note = f"not compared between environments, for only one has them: {', '.join(sorted(apart)[:5])}"
    note += f" and {len(apart) - 5} more" if len(apart) > 5 else ""
    return replace(theirs, eager=kept), {n: v for n, v in ours.items() if n not in apart}, note


def answer_between(session: Session, request: dict[str, Any], rest: Callable[[dict[str, Any]], Any]) -> Any:
    """The answer to a call of one of several environments; ``rest`` answers what every session answers."""
    if not isinstance(session, HandedSession):
        return rest(request)
    call = request["call"]
    if call == "hand_over":
        session.hand_over(Path(request["path"]))
        return {}
    if call == "agree":
        shaken = request.get("shaken")
        found, note = session.agree(Path(shaken) if shaken else None)
        return {"parity": found, "note": note, "judged": session.can_judge}
    if call == "shake":
        session.shake(Path(request["path"]))
        return {}
    if call == "open" and request.get("given"):
        session.take(Path(request["given"]))
    if call == "measure" and "iterations" in request:
        session.use_iterations(request["iterations"])
    return rest(request)
