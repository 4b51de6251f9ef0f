"""Names of suites, devices, models and candidates as text for tables and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.devices import type_of
from harness.loading.own_compiler import digest
from harness.loading.own_model import suite_of
from harness.schema import PUBLISHED_MODEL, Case, Job, Record, Scalar, Where

LONGEST_PART = 48  # characters: a file's name has up to five parts and at most 255 characters
LONGEST_REASON = 200  # characters


def plain(text: str) -> str:
    """One printable line: control characters, line ends and text-direction marks become visible escapes."""
    if text.isprintable():  # nearly always
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def reason(text: object) -> str:
    """A cause in one printable line of limited length, because a damaged line or a message can be long."""
    return cut(plain(str(text)), LONGEST_REASON)


def cut(text: str, most: int) -> str:
    """The text, or its first ``most`` characters and three dots."""
    return text if len(text) <= most else f"{text[:most]}..."


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def file_part(text: str) -> str:
    """``text`` as part of a file name on any system. The end of a long text is replaced by a digest."""
    part = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-") or "unnamed"
    return part if len(part) <= LONGEST_PART else f"{part[: LONGEST_PART - 9]}-{digest(text)}"


def suite_labels(suites: Iterable[str]) -> dict[str, str]:
    """A short name for each suite, safe in file names and unique; also by its ``suite_of``.

    The suite's name, or the stem of its file's path. Equal stems of different paths get a digest.
    """
    sources = {suite: suite_of(suite) for suite in suites}
    files = {source: re.split(r"[/\\]", source)[-1] for source in sources.values()}
    stems = {source: file_part(file.removesuffix(".py")) for source, file in files.items()}
    taken = list(stems.values())
    labels = {
        source: stem if taken.count(stem) == 1 or stem == source else f"{stem}-{digest(source)}"
        for source, stem in stems.items()
    }
    return {**labels, **{suite: labels[source] for suite, source in sources.items()}}


def where(record: Record, labels: dict[str, str]) -> str:
    """``tiny_gpt NanoGPT_addition (training, float32, cpu), inductor``"""
    case, job = record.job.case, record.job
    conditions = ", ".join((case.mode.value, job.dtype, job.device, *case.point))
    return f"{labels[case.suite]} {case.name} ({conditions}), {record.candidate}"


def notes_of(record: Record) -> tuple[str, ...]:
    """The remarks about the model (changes and assumptions), and the notes of the measurement."""
    return (*(record.model.remarks if record.model is not None else ()), *record.notes)


def device_labels(records: Sequence[Record]) -> tuple[str, ...]:
    """The device of each record, as averages name it: equal devices have equal labels.

    ``cuda:0`` and ``cuda:1`` are both ``cuda`` if they are the same GPU model. If the models differ, the
    label has the model: ``cuda (NVIDIA L4)``. A device of unknown model keeps its index.
    """
    models: dict[str, set[str]] = {}
    for record in records:
        name = record.environment.get("device_name")
        models.setdefault(record.job.device, set()).update([str(name)] if name else [])
    return tuple(_device_label(record, models) for record in records)


def _device_label(record: Record, models: dict[str, set[str]]) -> str:
    device = record.job.device
    kind = type_of(device)
    alike = [other for other in models if type_of(other) == kind]
    known = set().union(*(models[other] for other in alike))
    own = record.environment.get("device_name") or (min(models[device]) if len(models[device]) == 1 else None)
    if len(known) > 1 and own:
        return f"{kind} ({own})"
    return kind if own and len(alike) > 1 else device


def compiler_label(record: Record) -> str:
    """The candidate's name. Eager gets its precision if the baseline's precision differs."""
    job = record.job
    if record.candidate == "eager" and job.baseline_dtype not in (None, job.dtype):
        return f"eager {job.dtype}"
    return record.candidate


def ran_batch(record: Record) -> int | None:
    """The batch that ran: as the worker found it in the model's inputs, or else the job's."""
    planned = record.job.case.batch_size
    return planned if record.model is None or record.model.batch_size is None else record.model.batch_size


def ran_case(record: Record) -> Case:
    """The case at the batch that ran."""
    return replace(record.job.case, batch_size=ran_batch(record))


def batch_text(case: Case) -> str:
    """``64``; ``64 of 2048`` if it was reduced; ``own`` if the model's code sets it."""
    if case.batch_size is None:
        return "own"
    if case.published_batch_size in (None, case.batch_size):
        return f"{case.batch_size}"
    return f"{case.batch_size} of {case.published_batch_size}"


def is_scaled(case: Case) -> bool:
    """Whether the model is smaller than the published one, and not its batch alone."""
    published = case.published_batch_size is not None or not case.suite.endswith(".py")
    return case.scale != "full" and PUBLISHED_MODEL not in case.tags and published


def case_name(case: Case) -> str:
    """The model as tables name it, with all in which it is not the published one, on one line."""
    scale = (case.scale,) if is_scaled(case) else ()
    return plain(
        f"{case.name} ({', '.join((*scale, *case.changes))})" if scale or case.changes else case.name
    )


def job_title(job: Job) -> str:
    """``Sequential (training, float32, cpu)``"""
    return f"{case_name(job.case)} ({job.case.mode.value}, {job.dtype}, {job.device})"


def merged_facts(records: Iterable[Record]) -> dict[str, Scalar]:
    """The environment facts of all records. Different values are joined in order of appearance."""
    values: dict[str, dict[str, Scalar]] = {}
    for record in records:
        for name, value in record.environment.items():
            values.setdefault(name, {}).setdefault("-" if value is None else str(value), value)
    return {
        name: next(iter(variants.values())) if len(variants) == 1 else " | ".join(variants)
        for name, variants in values.items()
    }


def where_text(where: Where) -> str:
    """Stage, submodule and script of a localized failure."""
    if not where.stage:
        return where.note if where.bitwise else f"not localized: {where.note}"
    part = (
        f"{where.module} ({where.module_class})"
        if where.module
        else "no submodule alone, but the whole model"
    )
    text = f"goes wrong in {where.stage} ({where.compiler}), in {part}"
    if where.bitwise:
        text = f"{where.why}; by {where.stage} ({where.compiler}), first in {part}"
    more = (f"run {where.repro}" if where.repro else "", where.note)
    return "; ".join((text, *filter(None, more)))
