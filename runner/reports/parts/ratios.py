"""Ratios of times of the same rounds: over eager of an environment, a candidate, or a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness.metrics import declared
from harness.schema import Record
from runner.analysis.columns import JSON, Column, text_column, values
from runner.analysis.digits import MISSING, estimate_text
from runner.analysis.results import (
    COMPILATIONS,
    FIRST_STEPS,
    PAIRS,
    REFERENCE,
    Average,
    CompileStart,
    Ratio,
    Side,
    Summary,
    same_results,
)
from runner.analysis.texts import (
    compiler_name,
    mean_parts,
    mean_text,
    these_models_text,
    typical_seconds,
    verdict_text,
)
from runner.names import case_name, plain
from runner.reports.parts.sections import conditions, conditions_of
from runner.reports.parts.view import FILES, Part, View

MEMORY, LATENCY = "compile_peak_host_bytes", "compilation_latency_s"
MOST_ON_A_CONSOLE = 12  # rows; report.md and report.html have all
STARTS = "Compilations in fresh processes: geometric means"
BEGUN = "Start over cold start, by the first step in the same rounds (above 1: the first is faster)"
COMPARED = "Compilation over compilation, in the same rounds (above 1: the first is faster)"
OF_EACH = "Candidate over candidate, by model (above 1: the first is faster)"
OF_MODELS = "Candidate over candidate in the same rounds: geometric mean [95 % interval]"
RESULTS = {True: "same", False: "DIFFERENT", None: MISSING}
NOTE = (  # how to read the tables of environments
    "Each row is compared with eager of {reference}, in the same rounds. Read the rows of eager first: "
    "if eager of an environment is slow, a compiler's speedup over this eager looks too large. Column "
    "results: whether eager of the environment computes the same results as eager of {reference}, from "
    "the same weights and inputs."
)


def of_job(summary: Summary, record: Callable[[Any], Record], drop: int = 9) -> Iterator[Column[Any]]:
    """The first columns of a table of several sections. ``drop``: of the conditions."""
    labels = summary.labels
    yield Column("job", "text", lambda row: record(row).job.key)
    yield text_column("model", lambda row: case_name(record(row).job.case), once=True)
    yield text_column("conditions", lambda row: conditions_of(record(row), labels), drop, once=True)


def _of_place(summary: Summary) -> Iterator[Column[Average]]:
    labels = summary.labels
    yield text_column("models", lambda row: conditions(labels[row.ratio.place.suite], *row.ratio.place[1:]))
    yield from values("text", "suite", "mode", "device", "dtype", of="ratio.place.")


def _judged(name: str = "speedup", header: str = "speedup [95 % interval]") -> Iterator[Column[Ratio]]:
    """The ratio, with all that decides about its verdict."""
    yield Column(name, "ratio", "estimate.factor", header, lambda row: estimate_text(row.estimate))
    yield from (Column(f"ci_{end}", "ratio", f"estimate.{end}") for end in ("low", "high"))
    yield Column("p_value", "p", "estimate.p_value", "p", drop=4)
    yield Column("q_value", "p", "q_value", "q", drop=2)
    yield Column("verdict", "text", "verdict", "verdict", lambda row: verdict_text(row, counts=row.counts))


def _job(row: Ratio) -> str:
    return row.record.job.key


def _rounds(row: Ratio) -> int:
    return row.estimate.n if row.estimate else 0


N: Column[Ratio] = Column("n", "", _rounds, "n", lambda row: f"{n:,}" if (n := _rounds(row)) else MISSING, 5)
SIDES: tuple[Column[Ratio], ...] = (
    Column("first", "text", "record.candidate"),
    Column("second", "text", "other.candidate"),
    *(Column(f"{side}_start", "text", f"{side}.start") for side in ("first", "second")),
)


def _named(first: Side, second: Side) -> str:
    return plain(f"{compiler_name(first.name)} over {compiler_name(second.name)}")


# -- environments --------------------------------------------------------------------


def _environment_averages(summary: Summary) -> Iterator[Part[Average]]:
    averages = summary.averages_of(REFERENCE)
    if any(row.total > 1 for row in averages):
        where = averages[0].ratio.second.env
        yield f"Environments: geometric mean against eager of {where} [95 % interval over models]", averages


def _average_columns(summary: Summary) -> Iterator[Column[Average]]:
    yield from _of_place(summary)
    yield Column("environment", "text", "ratio.first.env", "environment")
    yield Column("versions", "text", versions, "versions", drop=2)
    yield Column("compiler", "text", "ratio.first.name", "compiler")
    yield Column("geomean_speedup", "ratio", "mean.value", "speedup", lambda row: mean_text(row.mean))
    yield from (Column(f"geomean_{end}", "ratio", f"mean.over.{end}") for end in ("low", "high"))
    yield from values("", "total")
    yield Column("averaged", "", "mean.models")
    yield text_column("averaged", lambda row: f"{row.mean.models}/{row.total}", 1)


def versions(average: Average) -> str:
    """Of torch in the environment."""
    known = average.ratio.record.job.environments
    return plain(f"torch {next(env.torch for env in known if env.name == average.ratio.first.env)}")


def _environments(summary: Summary) -> Iterator[Part[Ratio]]:
    labels = summary.labels
    parts: dict[str, list[Ratio]] = {}
    for row in summary.of(REFERENCE):
        parts.setdefault(conditions_of(row.record, labels), []).append(row)
    for name, rows in parts.items():
        yield f"Environments: {name}, against eager of {rows[0].second.env}", rows


def _across_columns(summary: Summary) -> Iterator[Column[Ratio]]:
    differ = any(same_results(row.record) is False for row in summary.of(REFERENCE))  # it must stay visible
    job, model, _ = of_job(summary, lambda row: row.record)
    yield from (job, model)
    yield from values("text", "candidate", of="record.")
    yield Column("environment", "text", "first.env", "environment")
    yield Column("compiler", "text", "first.name", "compiler")
    yield Column("reference", "text", "second.env")
    yield Column("torch", "text", "record.environment.torch")
    yield Column("reference_ms", "ms", "estimate.baseline_ms", "reference ms", drop=3)
    yield Column("ms", "ms", "estimate.candidate_ms", "ms")
    yield from _judged(header="speedup")
    yield Column("open_because", "text", "open.reason")
    same: Callable[[Ratio], bool | None] = lambda row: same_results(row.record)  # noqa: E731
    yield Column("same_results", "truth", same, "results", lambda row: RESULTS[same(row)], 0 if differ else 1)
    yield from values("truth", "counts")
    yield Column("parity", JSON, "record.env_parity")
    yield N


ENVIRONMENTS: tuple[View[Summary, Average], View[Summary, Ratio]] = (
    View(
        *("environment_averages", lambda summary: summary.averages_of(REFERENCE), _average_columns),
        parts=_environment_averages,
    ),
    View(
        *("environments", lambda summary: summary.of(REFERENCE), _across_columns),
        parts=_environments,
        group=_job,
        notes=lambda summary, _: [
            NOTE.format(reference=", ".join(dict.fromkeys(row.second.env for row in summary.of(REFERENCE))))
        ],
    ),
)


# -- candidates ----------------------------------------------------------------------


def _mean_columns(summary: Summary) -> Iterator[Column[Average]]:
    yield from _of_place(summary)
    yield from (Column(side, "text", f"ratio.{side}.name") for side in ("first", "second"))
    yield text_column("ratio of", lambda row: _named(row.ratio.first, row.ratio.second))
    yield text_column("for models like these", lambda row: mean_text(row.mean))
    yield text_column("for these models", lambda row: these_models_text(row.mean), 2)
    yield Column("", "", "mean.models", "n", drop=1)
    yield Column("mean", JSON, lambda row: mean_parts(row.mean))


def _pair_columns(summary: Summary) -> Iterator[Column[Ratio]]:
    yield from of_job(summary, lambda row: row.record)
    yield from SIDES[:2]
    yield text_column("ratio of", lambda row: _named(row.first, row.second))
    yield from _judged()
    yield Column("open_because", "text", "open.reason")
    yield N


CANDIDATES: tuple[View[Summary, Average], View[Summary, Ratio]] = (
    View(
        *("compiler_ratios", lambda summary: summary.averages_of(PAIRS), _mean_columns),
        parts=lambda s: [(OF_MODELS, [r for r in s.averages_of(PAIRS) if r.mean.models > 1])],
        short=lambda rows: (rows if len(rows) <= MOST_ON_A_CONSOLE else (), ""),
        folded=0,
    ),
    View(
        *("pairs", lambda summary: summary.of(PAIRS), _pair_columns, OF_EACH),
        group=_job,
        outlets=FILES,
        folded=0,
    ),
)


# -- compilations --------------------------------------------------------------------


def _start_columns(summary: Summary) -> Iterator[Column[CompileStart]]:
    """With the phases, and what stands beside them."""
    yield from of_job(summary, lambda row: row.comparison.record, drop=99)
    yield from values("text", "candidate", of="comparison.record.")
    yield text_column("candidate", lambda row: compiler_name(row.comparison.compiler), once=True)
    yield Column("start", "text", "start", "caches")
    yield text_column("seconds [95 % interval]", lambda row: typical_seconds(row.time))
    yield from (Column(f"ci_{end}", "s", f"time.{end}") for end in ("low", "high"))
    phases = {m.name: f"{m.phase} s" for m in declared().metrics if m.phase and m.name != LATENCY}
    heads = {**phases, MEMORY: "host memory"}
    for place, name in enumerate((*heads, *sorted(declared().by_name.keys() - heads.keys())), start=1):
        unit = declared().by_name[name].unit or "count"  # the mean of counts is no count
        yield Column(name, unit, f"means.{name}", heads.get(name, ""), drop=place)
    yield Column("n", "", "time.n", "n")


def _compile_columns(summary: Summary) -> Iterator[Column[Ratio]]:
    yield from of_job(summary, lambda row: row.record)
    yield from SIDES
    yield text_column("ratio of", _compared)
    yield from _judged("ratio")
    yield Column(
        "needed", "", "open.pairs", "closes with", lambda row: row.open.closes if row.open else "", 1
    )


def _compared(pair: Ratio) -> str:
    if pair.record is pair.other:
        return plain(f"{compiler_name(pair.first.name)}, {pair.first.start} over {pair.second.start}")
    return f"{_named(pair.first, pair.second)}, {pair.first.start}"


COMPILED: tuple[View[Summary, Any], ...] = (
    View(
        *("compile_starts", lambda summary: summary.compile_starts, _start_columns, STARTS),
        group=lambda row: (row.comparison.record.job.key, row.comparison.compiler),
        folded=0,
    ),
    View(
        *("compile_pairs", lambda summary: summary.of(COMPILATIONS), _compile_columns, COMPARED),
        group=_job,
        folded=0,
    ),
    View(
        *("first_steps", lambda summary: summary.of(FIRST_STEPS), _compile_columns, BEGUN),
        group=_job,
        folded=0,
    ),
)
