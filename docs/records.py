"""The committed records that README and the pages of results are about, as the pages need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.schema import Record, Samples, Status
from runner.analysis.verdicts.between import assumed_today
from runner.store.joined import joined_samples
from runner.store.record_file import read_records

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "results" / "headline-cpu"
JUDGED = SMALL / "judged"  # the same jobs, parity alone
WHOLE = ROOT / "results" / "headline-whole-cpu"
FLOAT32, BFLOAT16, AVX2 = WHOLE / "float32", WHOLE / "bfloat16", WHOLE / "avx2"
VERDICTS = ROOT / "results" / "verdicts-cpu"
FURTHER = [
    VERDICTS / f"whole-{name}"
    for name in ("again-training", "again-new", "training-three", "training-eight", "training-five")
]
"""Further processes of some of the headline's jobs, on the same processor."""
XEON = VERDICTS / "whole-training-xeon"
AGAIN = (
    (AVX2, VERDICTS / "whole-again"),
    (FLOAT32, VERDICTS / "whole-again-training"),
    (FLOAT32, VERDICTS / "whole-again-new"),
    (XEON / "ten", VERDICTS / "whole-training-xeon-again"),
    (FLOAT32, VERDICTS / "whole-again-passes"),
)
"""Two runs of the same ten models each: in inference, three times in training, in inference."""
REGIONAL = ROOT / "results" / "regional-cpu"
PROCESSES = ROOT / "results" / "processes-cpu"
POOLED = "cpu"  # in place of the name of a processor


def records_below(folder: Path) -> Iterator[Record]:
    """The first record of each job and candidate, of a run or of all runs in the folder.

    Each has the variation between processes that is assumed today, whatever was assumed on its day.
    """
    first: dict[tuple[str, str], Record] = {}
    for file in sorted([*folder.glob("records.jsonl*")] or folder.glob("*/records.jsonl*")):
        for record in read_records(file).records:
            first.setdefault((record.job.key, record.candidate), record)
    for record in first.values():
        yield replace(record, assumed_between_sd=assumed_today(record))


def with_further_processes(records: Sequence[Record], more: Iterable[Record]) -> Iterator[Record]:
    """The records, each with the samples of all records of its job and candidate."""
    parts: dict[tuple[str, str], list[Samples]] = {}
    for record in (*records, *more):
        if record.samples is not None:
            parts.setdefault((record.job.key, record.candidate), []).append(record.samples)
    for record in records:
        samples = record.samples and joined_samples(parts[record.job.key, record.candidate])
        yield replace(record, samples=samples)


def judged_again(records: Iterable[Record], again: Iterable[Record]) -> Iterator[Record]:
    """The records with the parity that ``again`` found by today's rule.

    Raises ``KeyError`` for a record that an older rule judged and ``again`` lacks.
    """
    today = {(record.job.key, record.candidate): record for record in again}
    for record in records:
        if record.parity is None:  # it ended before it could be judged
            yield record
        else:
            new = today[record.job.key, record.candidate]
            yield replace(record, status=new.status, failure=new.failure, parity=new.parity)


def judged_today(records: Iterable[Record]) -> Iterator[Record]:
    """The records by today's rule: parity cannot be judged where each gradient of eager is 0.

    Then the limit of each gradient was 0. Of the committed records, those of CLIP_ViT_B32 at a batch of 1.
    """
    for record in records:
        zero = record.parity is not None and record.parity.resolution_gradients == 0.0
        status = Status.CANNOT_JUDGE if zero and record.status.passed else record.status
        yield replace(record, status=status)


def processor(device: str) -> str:
    """``Intel Xeon`` of ``cpu (Intel(R) Xeon(R) Processor)``; empty if all runs have the same."""
    name = device.partition(" (")[2].removesuffix(")")
    return name.replace("(R)", "").removesuffix(" Processor")


def pooled(records: Iterable[Record]) -> list[Record]:
    """The records as if one processor had made them, in the order of the tables."""
    names = {"cpu": POOLED, "device_name": POOLED}
    blind = [replace(record, environment={**record.environment, **names}) for record in records]
    return sorted(blind, key=lambda record: record.job.case.mode.value)


def in_suite(name: str, records: Iterable[Record]) -> list[Record]:
    """The records as if all models were in the suite with this name: their averages are over all of them."""
    return [
        replace(record, job=replace(record.job, case=replace(record.job.case, suite=name)))
        for record in records
    ]
