"""Results of study A from its records: curves, compile and run times, ratios, checks against eager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import paired_speedup
from studies.journal import CUT_SHORT, PASS, Line, of_kind
from studies.training_time.chunks import FIRST_STEPS

EAGER = "eager"
REFERENCE = f"float32 {EAGER}"
ASTRAY = "DOES NOT FOLLOW"
TRAINING = ["variant", "seed"]


def chunks_of(lines: Sequence[Line]) -> pd.DataFrame:
    """All chunks in their order: what the records have of each, with the time of a step.

    ``steady``: after the first steps, which include compilation. ``valid``: the loss on held-out text after
    the step ``last``, missing without an evaluation.
    """
    columns = [*TRAINING, "first", "steps", "seconds", "valid"]
    chunks = pd.DataFrame(of_kind(lines, "chunk"), columns=columns).astype({"valid": "float64"})
    names = chunks["variant"].astype("string").str.partition(" ")
    return chunks.assign(
        precision=names[0] if len(chunks) else "",
        mode=names[2] if len(chunks) else "",
        last=chunks["first"] + chunks["steps"] - 1,
        step_s=chunks["seconds"] / chunks["steps"],
        steady=chunks["first"] >= FIRST_STEPS,
    )


def trainings(lines: Sequence[Line], chunks: pd.DataFrame) -> pd.DataFrame:
    """A row for each variant and seed: status, message, compile_s and run_s.

    ``compile_s``: time of the preparation, and of the first steps beyond that of as many later steps.
    """
    variants = [str(name) for name in lines[0]["variants"]]
    index = pd.MultiIndex.from_product([variants, range(lines[0]["sizes"]["seeds"])], names=TRAINING)
    outcomes = pd.DataFrame(of_kind(lines, "outcome"), columns=[*TRAINING, "status", "message"])
    prepared = pd.DataFrame(of_kind(lines, "prepared"), columns=[*TRAINING, "prepare_s"])
    prepare_s = prepared.groupby(TRAINING)["prepare_s"].sum().reindex(index, fill_value=0.0)
    total_s = chunks.groupby(TRAINING)["seconds"].sum().reindex(index, fill_value=0.0)
    step_s = chunks[chunks["steady"]].groupby(TRAINING)["step_s"].median()
    early = chunks[~chunks["steady"]].groupby(TRAINING)[["seconds", "steps"]].sum()
    extra_s = (early["seconds"] - early["steps"] * step_s).clip(lower=0).reindex(index).fillna(0.0)
    table = outcomes.drop_duplicates(TRAINING).set_index(TRAINING).reindex(index)
    table = table.fillna({"status": CUT_SHORT, "message": ""})
    return table.assign(compile_s=prepare_s + extra_s, run_s=total_s - extra_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTimes:
    """A variant over all seeds. Times in seconds; None if no training finished.

    ``compile_s``: of the first seed, whose caches were empty. ``run_s``: median of all seeds. ``steps``:
    speedup over float32 eager, from pairs of steady chunks.
    """

    precision: str
    mode: str
    status: str
    message: str | None
    compile_s: float | None
    run_s: float | None
    steps: PairedEstimate | None

    @property
    def wall_s(self) -> float | None:
        return None if self.compile_s is None or self.run_s is None else self.compile_s + self.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What the records of a run show. ``following``: of each variant beside eager, the distance from eager
    and the spread of eager, as root mean square differences of held-out losses, in nats."""

    chunks: pd.DataFrame
    rows: dict[str, VariantTimes]
    following: dict[str, tuple[float | None, float | None]]

    def verdict(self, variant: str) -> str:
        distance, spread = self.following[variant]
        if distance is None:
            return "did not train"
        if spread is None:
            return "unknown: takes two seeds or more"
        return "follows" if distance <= spread else ASTRAY

    def failures(self) -> list[str]:
        """A sentence for each failed variant, and for each variant that does not follow eager."""
        broken = [f"{name}: {row.status}" for name, row in self.rows.items() if row.status != PASS]
        return [*broken, *(f"{name}: {ASTRAY}" for name in self.following if self.verdict(name) == ASTRAY)]


def results(lines: Sequence[Line]) -> Results:
    chunks = chunks_of(lines)
    table = trainings(lines, chunks)
    statuses = table["status"]
    chunks = chunks.join(statuses, on=TRAINING)
    variants = list(dict.fromkeys(table.index.get_level_values("variant")))
    return Results(
        chunks=chunks,
        rows={name: _row(name, table.loc[name], chunks) for name in variants},
        following={name: _following(name, chunks) for name in variants if not name.endswith(f" {EAGER}")},
    )


def _row(variant: str, seeds: pd.DataFrame, chunks: pd.DataFrame) -> VariantTimes:
    precision, _, mode = variant.partition(" ")
    good, bad = seeds[seeds["status"] == PASS], seeds[seeds["status"] != PASS]
    return VariantTimes(
        precision=precision,
        mode=mode,
        status=bad["status"].iloc[0] if len(bad) else PASS,
        message=bad["message"].iloc[0] if len(bad) else None,
        compile_s=float(good["compile_s"].iloc[0]) if len(good) else None,
        run_s=float(good["run_s"].median()) if len(good) else None,
        steps=paired(chunks, REFERENCE, variant),
    )


def paired(chunks: pd.DataFrame, slow: str, fast: str) -> PairedEstimate | None:
    """The speedup of the steps of ``fast`` over those of ``slow``: same seed, same steps."""
    steady = chunks[chunks["steady"] & (chunks["status"] == PASS)]
    left, right = (steady[steady["variant"] == name][["seed", "first", "step_s"]] for name in (fast, slow))
    pairs = left.merge(right, on=["seed", "first"], suffixes=("_fast", "_slow"))
    return paired_speedup(list(pairs["step_s_slow"]), list(pairs["step_s_fast"])) if len(pairs) else None


def _following(variant: str, chunks: pd.DataFrame) -> tuple[float | None, float | None]:
    """Without the evaluation of step 0, before which nothing was learned."""
    judged = chunks[chunks["status"].isin([PASS, CUT_SHORT]) & (chunks["last"] > 0)].dropna(subset="valid")
    losses = judged.pivot_table(index="last", columns=TRAINING, values="valid")
    ours, eager = (
        losses.loc[:, losses.columns.get_level_values("variant") == name].droplevel("variant", axis=1)
        for name in (variant, f"{variant.partition(' ')[0]} {EAGER}")
    )
    spread = [eager[a] - eager[b] for a, b in combinations(eager, 2)]
    return _root_mean_square([ours - eager]), _root_mean_square(spread)


def _root_mean_square(differences: Sequence[pd.DataFrame | pd.Series[float]]) -> float | None:
    values = [pd.Series(difference.to_numpy().ravel()).dropna() for difference in differences]
    together = pd.concat(values) if values else pd.Series(dtype="float64")
    return float((together**2).mean() ** 0.5) if len(together) else None
