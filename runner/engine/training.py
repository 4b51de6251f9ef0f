"""The training runs of ``--trajectory``, one call to the worker for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.recorded.numerics import AGAIN, DEFAULT_OPTIMIZER, NOISY, REPEATS, SEEDS
from harness.schema import EAGER_START, Course, Job, Mode, Trajectory
from harness.settings import is_own_model
from runner.analysis.verdicts.trajectory import Stays, judged
from runner.engine.worker_session import CallFailed, CandidateState, WorkerSession


def train(
    job: Job, session: WorkerSession, states: Mapping[str, CandidateState], stop: Callable[[], bool]
) -> None:
    """Adds to each candidate its training run beside eager's. A failure costs no other result."""
    if job.case.mode is not Mode.TRAINING:
        return
    courses, why = list[Course](), "stopped"
    waiting = {compiler: states[name] for compiler, name in session.compilers.items() if name in states}
    try:
        for name in (EAGER_START, AGAIN, *NOISY, *SEEDS):
            if stop():
                break
            course = session.trajectory(name).course
            courses += [course] if course.loss else []  # without batches, there are no seeds
        while waiting and not stop():
            compiler = next(iter(waiting))
            try:
                waiting[compiler].trajectory = _trained(job, session, compiler, courses)
            except CallFailed as failed:
                if failed.lost:
                    raise
                waiting[compiler].notes += (f"no trajectory: {failed}",)
            del waiting[compiler]
    except CallFailed as failed:
        why = str(failed)
    for state in waiting.values():
        state.notes += (f"no trajectory: {why}",)


def _trained(job: Job, session: WorkerSession, compiler: str, courses: Sequence[Course]) -> Trajectory:
    """A candidate that is outside repeats its run: a value may have crossed a kink."""
    ran, optimizer = session.trajectory(compiler), job.protocol.optimizer
    known = Trajectory(
        steps=job.extras.trajectory,
        optimizer=DEFAULT_OPTIMIZER if optimizer == "none" else optimizer,
        learning_rate=None if is_own_model(optimizer) else job.extras.learning_rate,
        data="batches" if ran.batches else "one batch",
        places=ran.places,
        resolution=ran.resolution,
        eager=courses[0],
        courses=tuple(courses[1:]),
        candidate=ran.course,
    )
    if judged(known).stays is not Stays.OUTSIDE:
        return known
    return replace(known, repeats=tuple(session.trajectory(compiler, n).course for n in REPEATS))
