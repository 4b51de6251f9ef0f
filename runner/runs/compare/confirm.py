"""The gates of a run that is measured, and ``--confirm``, which measures again what a gate would fail.

Of many results, a gate selects those that chance has moved most, and their next measurement is nearer to the
truth. So with ``--confirm`` a case fails its gate only if fresh processes, measured after the selection and
judged without the earlier ones, fail it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.schema import Job, Record
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.runs.compare.changes import changes_between
from runner.runs.compare.gates import KINDS, Gate, GateResult, Row, gate_results
from runner.runs.compare.run import environments_of, in_environment, run_of
from runner.store.joined import results_of

Outcomes = tuple[list[GateResult], list[UsageError]]


def gates_of_run(
    path: Path, plan: Sequence[Job], processes: Sequence[Record], gates: Sequence[Gate], *, confirm: bool
) -> Outcomes:
    """The results of the gates of a run, and the errors for those without data; with ``confirm``, as above.

    ``processes``: all records of the run, of which those with ``confirms`` were measured again.
    """
    results, refusals = _judged(path, plan, [r for r in processes if not r.confirms], gates)
    if confirm:
        results = [_confirmed(result, path, processes) if result.failed else result for result in results]
    return results, refusals


def to_confirm(
    path: Path, processes: Sequence[Record], gates: Sequence[Gate]
) -> dict[tuple[str, str, str], str]:
    """By job, candidate and experiment: the words of the gates that would fail."""
    words: dict[tuple[str, str, str], list[str]] = {}
    for result in _judged(path, (), processes, gates)[0]:
        for record in (record for row in result.failed for record in row.records):
            key = record.job.key, record.candidate, KINDS[result.gate.kind].experiment
            words.setdefault(key, []).append(result.gate.words)
    return {key: ", ".join(dict.fromkeys(own)) for key, own in words.items()}


def _judged(path: Path, plan: Sequence[Job], processes: Sequence[Record], gates: Sequence[Gate]) -> Outcomes:
    """Gates that need two runs read each environment beside the reference; the others, all results."""
    records = results_of(processes)
    results, refusals = gate_results(summarize(records), [gate for gate in gates if KINDS[gate.kind].run])
    of_two = [gate for gate in gates if not KINDS[gate.kind].run]
    reference, *others = environments_of(records) if of_two else ("",)
    run = run_of(path, records, plan)
    for name in others:
        try:
            changes = changes_between(in_environment(run, reference), in_environment(run, name))
        except UsageError as error:  # no result of one has its like in the other
            refusals.append(error)
            continue
        own, without_data = gate_results(changes, of_two)
        results += [replace(r, title=f"{name}: {r.title}") for r in own] if len(others) > 1 else own
        refusals += without_data
    return sorted(results, key=lambda result: gates.index(result.gate)), refusals


def _confirmed(result: GateResult, path: Path, processes: Sequence[Record]) -> GateResult:
    """The result of its failed rows by what was measured again; without an answer, a row is unsure."""
    experiment = KINDS[result.gate.kind].experiment
    again = [r for r in processes if r.confirms and r.experiment == experiment]
    known = {(r.job.key, r.candidate) for r in again}
    if experiment:  # a result needs its timed process
        again += [r for r in processes if not (r.confirms or r.experiment)]
    judged = _judged(path, (), again, [result.gate])[0] if again else []
    failed = {_subject(row): row for own in judged for row in own.failed}
    answered = {_subject(row) for own in judged for row in own.rows if row not in own.unsure}
    cases, unsure, refuted = list[Row](), list[Row](), list[Row]()
    for row in result.failed:
        subject = _subject(row)
        if not known.issuperset(subject):
            unsure.append(replace(row, text=f"{row.text}; not measured again"))
        elif subject in failed:
            cases.append(replace(row, text=f"{row.text}; again {failed[subject].text}"))
        else:
            (refuted if subject in answered else unsure).append(row)
    return replace(
        result,
        failed=tuple(cases),
        unsure=(*result.unsure, *unsure),
        refuted=tuple(refuted),
        advice=result.advice if cases else "",
        confirmed=f"confirmed by rerun: {len(cases)} of {len(result.failed)}",
    )


def _subject(row: Row) -> tuple[tuple[str, str], ...]:
    return tuple((record.job.key, record.candidate) for record in row.records)
