"""``--shapes AXIS=SIZES``: a stream of calls of one model, with inputs of each of these sizes in turn."""

from __future__ import annotations

from dataclasses import replace

from harness.schema import Case, Job

PASSES = 10


def sizes_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.partition("=")[2].split(",")))


def has_stream(job: Job) -> bool:
    """Whether this process is one of ``--shapes``, and not the one that is timed."""
    return bool(job.extras.shapes and job.protocol.start)


def case_at(case: Case, text: str, size: int) -> Case:
    if text.startswith("batch="):
        return replace(case, batch_size=size)
    return replace(case, sequence=size)


def largest_case(case: Case, text: str) -> Case:
    """The case at the size at which the one model is built."""
    return case_at(case, text, max(sizes_of(text)))
