"""``--shapes AXIS=SIZES``: a stream of calls of one model, with inputs of each of these sizes in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.settings import no_such, whole

if TYPE_CHECKING:
    from harness.schema import Case, Job

AXES = ("batch", "sequence")
MOST = 8  # sizes: Dynamo's own limit of compilations, and the calls in which a candidate's settings hold
PASSES = 10
EXAMPLE = "write for example batch=16,24,32"


def spec(text: str) -> str:
    """The text in its own form: each size once. ``ValueError`` with a sentence."""
    axis, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} names no axis; {EXAMPLE}")
    if axis not in AXES:
        raise ValueError(no_such(axis, "axis", AXES))
    words = values.split(",")
    if not all(word.isdigit() for word in words):
        raise ValueError(f"{values!r} is no list of sizes; {EXAMPLE}")
    sizes = dict.fromkeys(whole(word, least=1) for word in words)
    if len(sizes) > MOST:
        raise ValueError(f"these are more than {MOST} sizes; {EXAMPLE}")
    return f"{axis}={','.join(map(str, sizes))}"


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
