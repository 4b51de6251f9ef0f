"""The tables of docs/NUMERICS.md, from committed records: ``docs.numbers`` has them among its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs.records import ROOT, records_below
from harness.schema import Numerics
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.analysis.digits import estimate_text, share_text, significant
from runner.analysis.results import PAIRS, Result
from runner.analysis.statistics import geomean
from runner.analysis.texts import mean_text

CARDS, TRAJECTORIES = (ROOT / "results" / name for name in ("numerics-cpu", "training-runs-cpu"))
PLAIN, STRICT = "inductor", "inductor_strict"
PRECISIONS = ("bfloat16", "float32")


def _number(value: float | None) -> str:
    return "-" if value is None else significant(value, 2)


def _share(card: Numerics | None) -> str:
    return "-" if card is None or card.bit_equal is None else share_text(card.bit_equal)


def cards() -> list[str]:
    """A row for each model: in each precision the cards of plain and strict, and the price of strict.

    The last lines are sentences.
    """
    records = [*records_below(CARDS)]
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
        yield _share(plain)
        differ = dtype == PRECISIONS[0]  # in the other, the cards of plain and strict are the same
        if differ:
            yield _share(strict)
        yield f"{_number(plain.ulp_median)}, {_number(plain.ulp_99)}" if plain else "-"
        decibels = (plain.sqnr_db, plain.eager_sqnr_db, plain.noisy_sqnr_db) if plain else ()
        yield "/".join(map(_number, decibels)) or "-"
        if differ:
            yield prices.get((model, dtype), "-")

    models = dict.fromkeys(model for model, _, _ in known)
    rows = ((model, *(cell for dtype in PRECISIONS for cell in cells(model, dtype))) for model in models)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    for dtype in PRECISIONS:
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
    """A row for each model: in each precision the verdicts, or the one on all candidates, and losses.

    A job that ran again has its newest records.
    """
    of_job: dict[tuple[str, str], dict[str, Result]] = {}
    folders = (TRAJECTORIES, *sorted(TRAJECTORIES.glob("again*")))
    records = [record for folder in folders for record in records_below(folder)]
    newest = {(record.job.case.name, record.job.dtype, record.candidate): record for record in records}
    for result in summarize([*newest.values()]).comparisons:
        job = result.record.job
        if result.record.trajectory is not None:
            of_job.setdefault((job.case.name, job.dtype), {})[result.record.candidate] = result

    def cells(results: Mapping[str, Result]) -> Iterator[str]:
        verdicts = {name: str(columns()["trajectory"].value(result)) for name, result in results.items()}
        same = len({*verdicts.values()}) == 1
        yield next(iter(verdicts.values())) if same else "; ".join(map(" ".join, verdicts.items()))
        for name in ("", "noisy_", "seed_"):
            yield _number(columns()[f"trajectory_{name}loss"].value([*results.values()][-1]))

    models = dict.fromkeys(model for model, _ in of_job)
    jobs = {model: [of_job.get((model, dtype)) for dtype in reversed(PRECISIONS)] for model in models}
    return [
        f"| {' | '.join((model, *(c for job in own for c in (cells(job) if job else '----'))))} |"
        for model, own in jobs.items()
    ]
