"""What docs/MEASURING.md says of the main job, and of the matrix beside ``benchmarks/dynamo``."""

from __future__ import annotations

import csv
import math
from datetime import datetime

from docs.records import ROOT, records_below
from runner.analysis.derive import compare
from runner.analysis.verdicts.decision import OPEN
from runner.store.joined import results_of
from runner.store.record_file import read_records

FOLDER = ROOT / "results" / "matrix-cpu" / "beside-dynamo"
MAIN_JOB = ROOT / "results" / "main-job-auto-cpu" / "records.jsonl.gz"


def matrix() -> str:
    """One sentence. Times of a job stand in each record of its worker, and count once."""
    records = [*records_below(FOLDER)]
    jobs = {record.job.key: record for record in records}.values()

    def seconds(*names: str) -> float:
        sides = ((name, records if name.startswith("candidate_") else jobs) for name in names)
        return sum(float(record.metrics[name] or 0) for name, those in sides for record in those)

    begun, ended = (datetime.fromisoformat(time) for time in (records[0].started, records[-1].ended))
    wall_s = (ended - begun).total_seconds()
    with (FOLDER / "dynamo.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    theirs_s = sum(float(row["seconds"]) for row in rows)
    theirs = {(r["model"], r["mode"], r["backend"]): r["result"] for r in rows if r["test"] == "performance"}
    inside, known = 0, compare(records)
    for result in known:
        case, interval = result.record.job.case, result.estimate.interval if result.estimate else None
        other = math.log(float(theirs[case.name, case.mode.value, result.record.candidate]))
        inside += interval is not None and interval[0] <= other <= interval[1]
    parity_s = seconds("spent_eager_s", "spent_fp64_s", "candidate_spent_check_s")
    return (
        f"of {wall_s:.0f} s, {seconds('candidate_spent_compile_s'):.0f} are compilation, "
        f"{seconds('spent_measure_s'):.0f} timed rounds, {parity_s:.0f} parity ({parity_s / wall_s:.0%}). "
        f"`benchmarks/dynamo` took {theirs_s:.0f} s in {len(rows)} processes in the same hour, so ours takes "
        f"{wall_s / theirs_s:.2f} of its time; {inside} of its {len(known)} speedups lie in our intervals"
    )


def main_job() -> str:
    """What the passes after the first add to a run of the main job, by the times in its records."""
    content = read_records(MAIN_JOB)
    first = [record for record in content.processes if record.process == 0]
    begun = datetime.fromisoformat(first[0].started)
    last = [datetime.fromisoformat(record.ended) for record in (first[0], first[-1], content.processes[-1])]
    first_s, table_s, whole_s = ((end - begun).total_seconds() for end in last)
    results = results_of(first), content.records
    before, after = (sum(result.verdict in OPEN for result in compare(each)) for each in results)
    return (
        f"the results of the first model came after {first_s:.0f} s, of all in one process each after "
        f"{table_s:.0f} s, and the end after {whole_s:.0f} s: passes make it {whole_s / table_s:.2f} times "
        f"as long and leave {after} of {len(content.records)} verdicts open, not {before}"
    )
