"""The tables of docs/NUMERICS.md, from committed records: ``docs.numbers`` has them among its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.records import ROOT, records_below
from harness.schema import Record
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.analysis.digits import estimate_text, share_text, significant
from runner.analysis.results import PAIRS, Result
from runner.reports.parts.numerics import NEARLY_ALL

CARDS, TRAJECTORIES = (ROOT / "results" / name for name in ("numerics-cpu", "training-runs-cpu"))
PLAIN, STRICT = "inductor", "inductor_strict"


def _records(folder: Path) -> Sequence[Record]:
    return [*records_below(folder)] if folder.is_dir() else []


def _share(value: float | None) -> str:
    return "-" if value is None else share_text(value if value == 1.0 else min(value, NEARLY_ALL))


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value, 2)


def cards() -> list[str]:
    """A row for each model: the plain candidate's card, strict's bits and its price."""
    summary = summarize(_records(CARDS))
    of_model: dict[str, dict[str, Record]] = {}
    for result in summary.comparisons:
        of_model.setdefault(result.record.job.key, {})[result.record.candidate] = result.record
    prices = {
        pair.record.job.key: estimate_text(pair.estimate)
        for pair in summary.of(PAIRS)
        if pair.estimate is not None and pair.record.candidate == PLAIN
    }
    rows = []
    for key, records in of_model.items():
        plain, strict = (records[name].numerics if name in records else None for name in (PLAIN, STRICT))
        if plain is None:
            continue
        cells = [
            records[PLAIN].job.case.name,
            f"{_share(plain.bit_equal)} ({plain.tensors_equal}/{plain.tensors})",
            *map(_number, (plain.ulp_median, plain.ulp_99, plain.ulp_largest)),
            *map(_number, (plain.sqnr_db, plain.eager_sqnr_db, plain.noisy_sqnr_db)),
            _share(strict.bit_equal if strict else None),
            prices.get(key, "-"),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def trajectories() -> list[str]:
    """A row for each model and precision, with the verdict on each candidate."""
    of_job: dict[str, list[Result]] = {}
    for result in summarize(_records(TRAJECTORIES)).comparisons:
        if result.record.trajectory is not None:
            of_job.setdefault(result.record.job.key, []).append(result)
    rows, known = [], columns()
    for results in of_job.values():
        first = results[0]
        told = (f"{r.record.candidate} {known['trajectory'].value(r)}" for r in results)
        losses = (known[f"trajectory_{name}loss"].value(results[-1]) for name in ("", "noisy_", "seed_"))
        job = first.record.job
        rows.append(f"| {' | '.join((job.case.name, job.dtype, '; '.join(told), *map(_number, losses)))} |")
    return rows
