"""``--sweep AXIS=VALUES``: each point of the axes is a job, whose case names it (``Case.point``)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.backends.settings.candidates import split_list
from harness.schema import Case, Job, Mode
from harness.settings import Kind, is_own_model, no_such, whole
from runner.errors import UsageError

AXES = ("batch", "sequence", "threads")
MOST = 64  # values of an axis
SPAN = re.compile(r"(\d{1,12}):(\d{1,12}):([*+])(\d{1,12})")
EXAMPLES = "give values such as 1,2,4,8 or 128:4096:*2"

Axis = tuple[str, tuple[int, ...]]


def _axis(text: str) -> Axis:
    name, _, values = text.partition("=")
    if name not in AXES:
        raise ValueError(no_such(name, "axis", AXES))
    span = SPAN.fullmatch(values)
    numbers = _spanned(*span.groups()) if span else (whole(word, least=1) for word in split_list(values))
    different = tuple(dict.fromkeys(itertools.islice(numbers, MOST + 1)))
    if not different:
        raise ValueError(f"{text!r} has no values; {EXAMPLES}")
    if len(different) > MOST:
        raise ValueError(f"{text!r} has more than {MOST} values; {EXAMPLES}")
    return name, different


def _spanned(first: str, last: str, sign: str, by: str) -> Iterator[int]:
    """``128:4096:*2`` or ``8:64:+8``: from the first number to at most the last."""
    value, end, step = whole(first, 1), whole(last, 1), whole(by, 2 if sign == "*" else 1)
    while value <= end:
        yield value
        value = value * step if sign == "*" else value + step


AXIS = Kind(_axis, lambda axis: f"{axis[0]}={','.join(map(str, axis[1]))}")


def points(job: Job, axes: Sequence[Axis]) -> Iterator[Job]:
    """The job at each combination of the values, or alone. ``UsageError`` if it has no such size."""
    names = [name for name, _ in axes]
    for values in itertools.product(*(values for _, values in axes)):
        yield _at(job, dict(zip(names, values, strict=True)))


def check_stream(job: Job) -> None:
    """``UsageError`` if the model has no such size as ``--shapes`` changes."""
    axis, _, sizes = job.extras.shapes.partition("=")
    if sizes:
        _at(job, {axis: 1}, "--shapes")


def _at(job: Job, point: dict[str, int], flag: str = "--sweep") -> Job:
    case, protocol = job.case, job.protocol
    if "batch" in point:  # half of a batch would be another point
        case = replace(case, batch_size=point["batch"])
        protocol = replace(protocol, fixed_batch=True)
    if "sequence" in point and case.mode is Mode.GENERATE:
        case = replace(case, prompt_tokens=point["sequence"])
    elif "sequence" in point:
        if case.sequence is None and not is_own_model(case.suite):
            raise UsageError(
                f"{flag}: {case.name} of {case.suite} has no sequence length that can be set; leave it out "
                "(-x), or give another axis"
            )
        case = replace(case, sequence=point["sequence"])
    if "threads" in point:
        protocol = replace(protocol, threads=point["threads"])
    words = tuple(f"{name}={value}" for name, value in point.items())
    return replace(job, case=replace(case, point=words), protocol=protocol)


def axes_of(case: Case) -> tuple[Axis, ...]:
    """The axes whose only point is that of the case."""
    return tuple((name, (value,)) for name, value in case.at.items())
