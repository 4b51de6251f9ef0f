"""The tables of docs/NUMERICS.md, from committed records: ``docs.numbers`` has them among its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.records import ROOT, records_below
from harness.schema import Record
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.analysis.digits import estimate_text, significant
from runner.analysis.results import PAIRS, Result
from runner.analysis.statistics import geomean
from runner.analysis.texts import mean_text
from runner.reports.parts.numerics import share

CARDS, TRAJECTORIES = (ROOT / "results" / name for name in ("numerics-cpu", "training-runs-cpu"))
PLAIN, STRICT = "inductor", "inductor_strict"
PRECISIONS = ("bfloat16", "float32")


def _records(folder: Path) -> Sequence[Record]:
    return [*records_below(folder)] if folder.is_dir() else []


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value, 2)


def cards() -> list[str]:
    """A row for each model: in each precision the cards of plain and strict, and the price of strict.

    The last lines are sentences.
    """
    records = _records(CARDS)
    known = {(r.job.case.name, r.job.dtype, r.candidate): r for r in records}
    speeds = {
        (pair.record.job.case.name, pair.record.job.dtype): pair.estimate
        for pair in summarize(records).of(PAIRS)
        if pair.estimate is not None and pair.record.candidate == STRICT
    }
    prices = {place: estimate_text(speed) for place, speed in speeds.items()}

    def cells(model: str, dtype: str) -> Iterator[str]:
        sides = [known.get((model, dtype, candidate)) for candidate in (PLAIN, STRICT)]
        plain, strict = (side.numerics if side else None for side in sides)
        yield share(plain.bit_equal) if plain else "-"
        yield share(strict.bit_equal) if strict else "-"
        yield f"{_number(plain.ulp_median)}, {_number(plain.ulp_99)}" if plain else "-"
        yield (
            "/".join(map(_number, (plain.sqnr_db, plain.eager_sqnr_db, plain.noisy_sqnr_db)))
            if plain
            else "-"
        )
        yield prices.get((model, dtype), "-")

    models = dict.fromkeys(model for model, _, _ in known)
    rows = ((model, *(cell for dtype in PRECISIONS for cell in cells(model, dtype))) for model in models)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    for dtype in PRECISIONS if records else ():
        pairs = [
            (plain.bit_equal, strict.bit_equal)
            for model in models
            if (plain := known[model, dtype, PLAIN].numerics)
            and (strict := known[model, dtype, STRICT].numerics)
        ]
        whole = [sum(side[place] == 1.0 for side in pairs) for place in (0, 1)]
        more = sum((strict or 0.0) > (plain or 0.0) for plain, strict in pairs)
        mean = mean_text(geomean([speed for (_, its), speed in speeds.items() if its == dtype]))
        lines.append(
            f"{dtype}: {len(pairs)} models; all of eager's bits: plain {whole[0]}, strict {whole[1]}; strict "
            f"has more bits in {more}, and is {mean} as fast as plain"
        )
    return lines


def trajectories() -> list[str]:
    """A row for each model and precision, with the verdict on each candidate."""
    of_job: dict[str, list[Result]] = {}
    for result in summarize(_records(TRAJECTORIES)).comparisons:
        if result.record.trajectory is not None:
            of_job.setdefault(result.record.job.key, []).append(result)
    rows, known = [], columns()
    for results in of_job.values():
        job = results[0].record.job
        told = "; ".join(f"{r.record.candidate} {known['trajectory'].value(r)}" for r in results)
        losses = (known[f"trajectory_{name}loss"].value(results[-1]) for name in ("", "noisy_", "seed_"))
        rows.append(f"| {' | '.join((job.case.name, job.dtype, told, *map(_number, losses)))} |")
    return rows
