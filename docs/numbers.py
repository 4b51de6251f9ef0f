"""The numbers of README and the pages of results, from committed records: ``python -m docs.numbers``.

Prints each line that the pages must have. ``tests/unit/test_numbers.py`` fails if a page lacks a line, or has
a row or a digit of its own. Averages of the small models are over both processors; a sentence gives each.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from scipy.stats import gmean

from docs.records import (
    AGAIN,
    AVX2,
    BFLOAT16,
    FLOAT32,
    FURTHER,
    JUDGED,
    PROCESSES,
    ROOT,
    SMALL,
    VERDICTS,
    XEON,
    in_suite,
    judged_again,
    judged_today,
    made_on,
    pooled,
    records_below,
    with_further_processes,
)
from harness.loading.python_file import load_file
from harness.schema import Protocol, Record, Status
from runner.analysis.columns import columns, frame
from runner.analysis.derive import summarize
from runner.analysis.digits import MISSING, estimate_text, ms_text, steps_text
from runner.analysis.statistics import wilson
from runner.analysis.texts import mean_text
from runner.analysis.verdicts import Limits, Paying, Verdict
from runner.analysis.verdicts.decision import difference, verdict
from runner.reports.parts.grid import optional
from runner.runs.why.words import overview, overview_text
from runner.store.record_file import read_records

if TYPE_CHECKING:
    from runner.analysis.results import GroupSummary, Result
    from runner.runs.why.explain import Why

MODES = ("inference", "training")
WHOLE_NAME, BFLOAT16_NAME, SMALL_NAME = "whole", "whole-bfloat16", "small"
WHOLE_COMPILERS = ("inductor", "inductor[freezing=True]", "aot_eager")
SUITES = ("timm_models", "huggingface", "tiny_gpt")
DECIDED = (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER)
OF_TABLE = [
    *("suite", "name", "mode", "dtype", "compiler", "status", "verdict", "speedup", "ci_low", "ci_high", "n"),
    *("processes", "batch_size", "published_batch_size", "parameters", "baseline_ms", "candidate_ms"),
    *("compilation_latency_s", "break_even_steps", "memory_ratio", "open_because", "parity_rule"),
]
DASH = "\N{EN DASH}"


def rules(old: Sequence[Record], new: Sequence[Record]) -> str:
    """What SMALL_SCALE says of an older rule's verdicts and of today's. ``new``: of ``judged_again``."""
    both = [pair for pair in zip(old, new, strict=True) if pair[0].parity is not None]
    same = sum(first.status is second.status for first, second in both)
    behind_kinks = Counter(
        second.job.case.mode.value
        for _, second in both
        if second.candidate == "inductor" and second.parity is not None and second.parity.sensitive_tensors
    )
    inference, training = (behind_kinks[mode] for mode in MODES)
    return (
        f"{same} of {len(both)} statuses are those of the older rule. Of Inductor's jobs {inference} in "
        f"inference and {training} in training have *sensitive* tensors"
    )


class Numbers:
    """What the pages say about the models of a folder of runs."""

    def __init__(self, records: Sequence[Record]) -> None:
        summary = summarize(pooled(records))
        self.groups = {
            (group.compiler, group.place.suite, group.place.mode): group for group in summary.groups
        }
        data = frame(summary.comparisons, columns().values())
        self.data = data.assign(comparison=list(summary.comparisons))

    def of(self, compiler: str, suite: str, mode: str) -> pd.DataFrame:
        """The rows of the models that passed, with a speedup."""
        data = self.data[self.data["passed"]].dropna(subset="speedup")
        keys = {"compiler": compiler, "suite": suite, "mode": mode}
        return data[(data[[*keys]] == pd.Series(keys)).all(axis=1)]

    def counts(self, group: GroupSummary) -> list[int]:
        """How many models are faster, the same, slower, open."""
        decided = [group.verdicts.get(verdict.value, 0) for verdict in DECIDED]
        return [*decided, sum(group.verdicts.values()) - sum(decided)]


def of_all(even: Paying) -> str:
    """The median over all models."""
    return "open" if even.open else optional(even.median, steps_text)


def outcomes(numbers: Numbers, key: tuple[str, str, str], more: str = "") -> str:
    """How many models passed, how many had wrong results, and how many did not run or could not be judged."""
    group = numbers.groups[key]
    data = numbers.data[(numbers.data[["compiler", "suite", "mode"]] == [*key]).all(axis=1)]
    wrong = int((data["status"] == Status.FAIL_ACCURACY.value).sum())
    return f"{group.passed}/{group.total}{more} | {wrong} | {group.total - group.passed - wrong}"


def first_page(numbers: Numbers, suite: str) -> Iterator[str]:
    """The rows of README's table, of models in one suite."""
    for mode in MODES:
        key = "inductor", suite, mode
        group, median = numbers.groups[key], numbers.of(*key)["speedup"].median()
        even = group.break_even
        yield (
            f"| {suite}, {mode} | {outcomes(numbers, key)} | {median:.2f}x | {mean_text(group.mean)} "
            f"| {'/'.join(map(str, numbers.counts(group)))} | {even.pays} of {even.models} after "
            f"{optional(even.median_of_paying, steps_text)}; over all models {of_all(even)} |"
        )


def batches(records: Sequence[Record]) -> str:
    """The batch sizes that most whole models have, in two suites."""
    images, text = (
        statistics.mode(record.job.case.batch_size for record in records if record.job.case.suite == suite)
        for suite in SUITES[:2]
    )
    return f"batch {text} for text (of the published length), {images} for images"


def made_with(records: Iterable[Record]) -> str:
    """The versions that made these records, without torch's build, and the days."""
    packages = {"torch": "torch", "transformers": "transformers", "timm": "timm", "python": "Python"}
    made = pd.DataFrame([{**record.environment, "day": record.started} for record in records])
    seen = {name: made[name].dropna().str.extract(r"([\d.]+)")[0].unique() for name in packages}
    versions = (f"{packages[name]} {' and '.join(texts)}" for name, texts in seen.items())
    days = pd.to_datetime(made["day"]).dt.date
    since = f"{days.min():%-d} to " if days.min() < days.max() else ""
    return f"{', '.join(versions)}, {since}{days.max():%-d %B %Y}"


def passes(all_small: Numbers) -> str:
    """What RESULTS says of the models at small scale: how many pass in each mode."""

    def passed(compiler: str) -> str:
        return " and ".join(str(all_small.groups[compiler, SMALL_NAME, mode].passed) for mode in MODES)

    total = all_small.groups["inductor", SMALL_NAME, "training"].total
    return f"Inductor passes {passed('inductor')} of {total}, aot_eager {passed('aot_eager')}."


def average_row(numbers: Numbers, label: str, key: tuple[str, str, str]) -> str:
    """A row of averages, over the group of this compiler, suite and mode."""
    group, (low, median, high) = numbers.groups[key], numbers.of(*key)["speedup"].quantile([0.1, 0.5, 0.9])
    even, passed = group.break_even, f" [{100 * group.pass_low:.0f}, {100 * group.pass_high:.0f}]"
    return (
        f"| {label} | {outcomes(numbers, key, passed)} | {median:.2f}x "
        f"| {mean_text(group.mean)} | {low:.2f}{DASH}{high:.2f} "
        f"| {'/'.join(map(str, numbers.counts(group)))} "
        f"| {even.pays} of {even.models}, {optional(even.median_of_paying, steps_text)}; {of_all(even)} |"
    )


def labels(numbers: Numbers, suite: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The groups of models in one suite, each with its label in tables."""
    precision = suite.partition("-")[2]
    for compiler, mode in itertools.product(WHOLE_COMPILERS, MODES):
        if (key := (compiler, suite, mode)) in numbers.groups:
            yield ", ".join(filter(None, (compiler, mode, precision))), key


def whole_rows(whole: Numbers, suite: str) -> Iterator[str]:
    """The rows of RESULTS's first table, of models in one suite."""
    for label, key in labels(whole, suite):
        yield average_row(whole, label, key)


def small_rows(small: Numbers) -> Iterator[str]:
    """The rows of SMALL_SCALE's first table."""
    for mode, suite in itertools.product(MODES, SUITES):
        yield average_row(small, f"{suite}, {mode}", ("inductor", suite, mode))


def model_rows(numbers: Numbers, mode: str) -> Iterator[str]:
    """A row for each whole model: batch, parameters, eager's time, and the speedup of each compiler."""
    data = numbers.data[numbers.data["mode"] == mode]
    for name, rows in data.groupby("name", sort=True):
        comparisons = dict(zip(rows["compiler"], rows["comparison"], strict=True))
        cells = [_cell(comparisons[compiler]) for compiler in WHOLE_COMPILERS if compiler in comparisons]
        times, counts = rows["baseline_ms"].dropna(), rows["parameters"].dropna()  # none where eager fails
        size = MISSING if counts.empty else f"{counts.max() / 1e6:.3g} M"
        step = MISSING if times.empty else ms_text(times.max())
        yield f"| {name} | {rows['batch_size'].iloc[0]:.0f} | {size} | {step} | {' | '.join(cells)} |"


def table(records: Iterable[Record]) -> list[str]:
    """The lines of the whole models' table of all numbers."""
    rows = Numbers([*records]).data[OF_TABLE].sort_values(["suite", "name", "mode", "compiler"])
    text: str = rows.to_csv(index=False, float_format="%.4g")
    return text.splitlines()


def _cell(comparison: Result) -> str:
    """The speedup with its verdict, unless it is faster or slower; without a speedup, the status."""
    if comparison.speedup is None or not comparison.record.status.passed:
        return comparison.record.status.value
    speedup = estimate_text(comparison.estimate)
    if (verdict := comparison.verdict) is None or verdict in (Verdict.FASTER, Verdict.SLOWER):
        return speedup
    return f"{speedup}, {verdict.value}"


def in_several_processes(records: Iterable[Record]) -> str:
    """What RESULTS says of the whole models' processes. ``records``: in float32."""
    counts: dict[str, list[int]] = {"inductor": [], "aot_eager": []}
    for record in records:
        if record.candidate in counts and record.job.case.mode.value == "training" and record.samples:
            counts[record.candidate].append(len(record.samples.rounds_by_process))
    several, of_aot = ([count for count in each if count > 1] for each in counts.values())
    (each_of_aot,) = {*of_aot}
    return (
        f"training in float32, where inductor has {min(several)} to {max(several)} in {len(several)} of "
        f"{len(counts['inductor'])} models, aot_eager {each_of_aot} in {len(of_aot)}"
    )


def both_ways(first: pd.DataFrame, second: pd.DataFrame, subject: str, words: tuple[str, str]) -> str:
    """Of models that were measured in two ways."""
    both = first.merge(second, on="name", suffixes=("", "_again"))
    change = (both["speedup"] / both["speedup_again"]).set_axis(both["name"]).sort_values()
    ends = " to ".join(f"{change.iloc[end]:.2f} ({change.index[end]})" for end in (0, -1))
    means = f"{gmean(both['speedup']):.2f}x {words[0]}, {gmean(both['speedup_again']):.2f}x {words[1]}"
    return f"{len(both)} models in {subject}: {means}; the ratio of the two is {ends}"


def whole_and_small(whole: Numbers, small: Numbers) -> Iterator[str]:
    """Of models that were measured whole and at small scale."""
    for mode in MODES:
        parts = whole.of("inductor", WHOLE_NAME, mode), small.of("inductor", SMALL_NAME, mode)
        yield both_ways(*parts, mode, ("whole", "small"))


def processor_and_precision(whole: Numbers, avx2: Numbers, xeon: Numbers, bfloat16: Numbers) -> Iterator[str]:
    """Of models that were measured on two processors, and on one in two precisions."""
    epyc, intel = (part.of("inductor", WHOLE_NAME, "training") for part in (whole, xeon))
    yield both_ways(epyc, intel, "training", ("on the EPYC with AVX-512", "on an Intel Xeon with it"))
    for mode in MODES:
        float32 = whole.of("inductor", WHOLE_NAME, mode)
        without = avx2.of("inductor", WHOLE_NAME, mode)
        yield both_ways(float32, without, mode, ("with AVX-512", "without"))
        both = bfloat16.of("inductor", BFLOAT16_NAME, mode), float32
        yield both_ways(*both, mode, ("in bfloat16", "in float32"))


def smallest_to_largest(ways: Iterable[str]) -> str:
    """What BIAS says of the ratios in ``both_ways``."""
    ratios = [ratio for way in ways for ratio in re.findall(r"(\d\.\d\d) \(", way)]
    return f"{min(ratios)} to {max(ratios)}"


def sentences(numbers: Numbers, all_small: Numbers) -> Iterator[str]:
    """What SMALL_SCALE says below its table. ``all_small``: the same models as one suite."""
    aot = {mode: all_small.of("aot_eager", SMALL_NAME, mode)["speedup"] for mode in MODES}
    means = [f"{gmean(speedups):.2f}x in {mode}" for mode, speedups in aot.items()]
    yield f"has a geometric mean of {' and '.join(means)}."
    rows = {key: numbers.of("inductor", *key) for key in itertools.product(SUITES, MODES)}
    times = {key: data["compilation_latency_s"] for key, data in rows.items()}
    largest = max(column.max() for column in times.values())
    timm, large = ([f"{times[suite, mode].median():.0f} s" for mode in MODES] for suite in SUITES[:2])
    yield (
        f"Inductor compiles for {large[0]} (huggingface) and {timm[0]} (timm_models) in inference, "
        f"{large[1]} and {timm[1]} in training (medians; largest {largest:.0f} s)"
    )
    memory = {key: gmean(data["memory_ratio"].dropna()) for key, data in rows.items()}
    timm, large = ([f"{memory[suite, mode]:.2f}x" for mode in MODES] for suite in SUITES[:2])
    yield (
        f"eager has {large[0]} of it (huggingface) and {timm[0]} (timm_models) in inference, {large[1]} and "
        f"{timm[1]} in training"
    )


def by_processor(records: Sequence[Record]) -> str:
    """The means in training on each processor, in the order of ``SUITES``."""
    means = []
    for vendor in ("Intel", "AMD"):
        groups = Numbers([*made_on(vendor, records)]).groups
        means.append([groups["inductor", suite, "training"].mean.value or 0.0 for suite in SUITES])
    (timm, large, tiny), (timm_epyc, large_epyc, tiny_epyc) = means
    return (
        f"In this order, means in training are {timm:.2f}x, {large:.2f}x and {tiny:.2f}x on the Xeon, "
        f"{timm_epyc:.2f}x, {large_epyc:.2f}x and {tiny_epyc:.2f}x on the EPYC."
    )


def causes(explanations: Mapping[Path, Why], scale: str) -> Iterator[str]:
    """The rows of a table of ``--why`` at this scale, where the model was slower again."""
    of_scale = [why for why in explanations.values() if why.plain.record.job.case.scale == scale]
    for row in overview_text(of_scale).splitlines()[2:]:
        if "| no loss |" not in row:
            yield re.sub(r" \((\w+), (\w+), cpu\)", _unusual, row.replace(f" ({scale})", ""))


def _unusual(mode_and_precision: re.Match[str]) -> str:
    return "".join(f", {word}" for word in mode_and_precision.groups() if word not in ("training", "float32"))


def ends(whys: Sequence[Why]) -> str:
    """How the models ended with which ``--why`` was run."""
    states = Counter(state or cause for _, _, cause, state, *_ in overview(whys).rows)
    slower = {state: states[state] for state in ("explained", "suspected", "not explained") if states[state]}
    named = ", ".join(f"{count} {state}" for state, count in slower.items())
    verdicts = Counter(why.plain.verdict for why in whys)
    faster, same = verdicts[Verdict.FASTER], verdicts[Verdict.SAME]
    undecided = states["no loss"] - faster - same
    others = {"faster": faster, "the same": same, "not decided": undecided}
    more = "".join(f", {count} {word}" for word, count in others.items() if count)
    return f"{sum(slower.values())} are slower again ({named}){more}."


def whole_explained(whys: Mapping[Path, Why], whole: Numbers, bfloat16: Numbers) -> Iterator[str]:
    """What RESULTS says of the slower whole models: how many are explained."""
    precisions = (whole, WHOLE_NAME, "_whole"), (bfloat16, BFLOAT16_NAME, "_bfloat16_whole")
    counts, runs = [], []
    for numbers, suite, ending in precisions:
        slower = numbers.of("inductor", suite, "training").query("verdict == 'slower'")["name"]
        counts.append(len(slower))
        runs.append(_of_folders(whys, {f"{name}{ending}" for name in slower}))
    yield "{} whole models are slower in training in float32, {} in bfloat16".format(*counts)
    yield "{} and {} of these: {}".format(*map(len, runs), ends([*itertools.chain(*runs)]))


def small_explained(whys: Mapping[Path, Why], all_small: Numbers) -> str:
    """What SMALL_SCALE says of the models below 1.00x: how many are explained."""
    below = {
        f"{name}{'' if mode == 'training' else f'_{mode}'}"
        for mode in MODES
        for name in all_small.of("inductor", SMALL_NAME, mode).query("speedup < 1")["name"]
    }
    run = _of_folders(whys, below)
    return f"was run with {len(run)} that are below 1.00x: {ends(run)}"


def _of_folders(whys: Mapping[Path, Why], names: set[str]) -> list[Why]:
    return [why for folder, why in whys.items() if folder.name in names]


def controls() -> tuple[str, str]:
    """What README and STATISTICS say of eager against itself, in all committed records."""
    replay = load_file(ROOT / "results" / "calibration" / "replay.py")
    rows = {name: counts for name, *counts in replay.rows(sorted((ROOT / "results").iterdir()))}
    (count, held, called, *_), (busy, _, called_busy, *_) = rows["all"], rows["aa-busy-cpu"]
    low, high, share = (f"{100 * part:.1f}" for part in (*wilson(called, count), called / count))
    elsewhere = f"{called - called_busy} of {count - busy:,} elsewhere"
    in_readme = (
        f"Re-judged by today's rule, {called} of {count:,} stored sequences of eager beside a second eager "
        f"are called faster or slower ({called_busy} of {busy} on"
    )
    in_statistics = (
        f"Of {count:,} sequences of eager beside a second eager, each judged as one process, the interval "
        f"holds 1 in {held:,}, and {called} ({share} % [{low}, {high}]) are called *faster* or *slower*: "
        f"{called_busy} of {busy} beside a core that another program saturates, {elsewhere}."
    )
    return in_readme, in_statistics


def two_runs() -> str:
    """What STATISTICS says of the processes of a model, two at a time as if they were runs."""
    how, counts, beyond = load_file(VERDICTS / "how.py"), Counter[str](), Counter[str]()
    records = [record for file in PROCESSES.glob("*/records.jsonl*") for record in read_records(file).records]
    for model in how.processes_of([record for record in records if record.candidate != "eager"]):
        today, mode = model.today(), model.job.case.mode.value
        alone = [today.estimate([number], today.tau) for number in range(len(today.parts))]
        for change in itertools.starmap(difference, itertools.combinations(alone, 2)):
            assert change is not None
            assert change.interval is not None
            low, high = change.interval
            counts[mode] += 1
            beyond[mode] += not low <= 0 <= high
            called = verdict(change, change.p_value, Limits.of(Protocol()))
            assert called not in (Verdict.FASTER, Verdict.SLOWER)
    (count,) = {*counts.values()}
    inference, training = (f"{100 * beyond[mode] / count:.1f} %" for mode in MODES)
    return (
        f"{inference} of {count} intervals leave out 1 in inference, {training} in training; none is called."
    )


def lines() -> dict[str, list[str]]:
    """What each page must have, by its path."""
    older = [*records_below(SMALL)]
    records = [*judged_again(older, records_below(JUDGED))]
    small, all_small = Numbers(records), Numbers(in_suite(SMALL_NAME, records))
    folders = {FLOAT32, BFLOAT16, AVX2, XEON, *(first for first, _ in AGAIN)}
    by_folder = {folder: [*records_below(folder)] for folder in folders}
    further = [*itertools.chain(*map(records_below, FURTHER))]
    of_float32 = [*judged_today(with_further_processes(by_folder[FLOAT32], further))]
    of_bfloat16, of_avx2 = ([*judged_today(by_folder[folder])] for folder in (BFLOAT16, AVX2))
    whole = Numbers(in_suite(WHOLE_NAME, of_float32))
    bfloat16 = Numbers(in_suite(BFLOAT16_NAME, of_bfloat16))
    avx2, xeon = (Numbers(in_suite(WHOLE_NAME, part)) for part in (of_avx2, by_folder[XEON]))
    counts = xeon.counts(xeon.groups["inductor", WHOLE_NAME, "training"])
    count = f"{whole.groups['inductor', WHOLE_NAME, 'training'].total} models"
    on_epyc = [*made_on("AMD", records)]
    in_readme, in_statistics = controls()
    explanations = load_file(ROOT / "results" / "why-cpu" / "tables.py").explanations()
    again = load_file(VERDICTS / "again.py").rows
    again_rows = [[*again(by_folder[first], records_below(second))] for first, second in AGAIN]
    z_inference, z_training, z_new, z_xeon = (rows[-1].split()[-1] for rows in again_rows)
    sizes = [*whole_and_small(whole, all_small)]
    ways = [*processor_and_precision(whole, avx2, xeon, bfloat16)]
    slower, slower_small = ([*causes(explanations, scale)] for scale in ("full", "small"))
    return {
        "README.md": [
            *first_page(whole, WHOLE_NAME),
            *first_page(bfloat16, BFLOAT16_NAME),
            *first_page(all_small, SMALL_NAME),
            count,
            batches(of_float32),
            f"the coverage of {all_small.groups['inductor', SMALL_NAME, 'training'].total} models",
            f"({len({r.job.key for r in on_epyc})} in training: EPYC)",
            in_readme,
        ],
        "docs/STATISTICS.md": [in_statistics, two_runs()],
        "docs/RESULTS.md": [
            *whole_rows(whole, WHOLE_NAME),
            *whole_rows(bfloat16, BFLOAT16_NAME),
            passes(all_small),
            *slower,
            *whole_explained(explanations, whole, bfloat16),
            f"standard deviation of z {z_inference} in inference, {z_training} in training, and {z_new}",
            f"an hour apart, by `--processes=auto`: {z_xeon}",
            f"of {sum(counts)} at random, this default leaves {counts[-1]} open there",
            count,
            in_several_processes(of_float32),
            made_with([*of_float32, *further, *of_bfloat16]),
        ],
        "docs/SMALL_SCALE.md": [
            *small_rows(small),
            *sentences(small, all_small),
            small_explained(explanations, all_small),
            by_processor(records),
            rules(older, records),
            made_with(records),
        ],
        "docs/BIAS.md": [
            f"{smallest_to_largest(way for way in ways if 'bfloat16' not in way)} on another processor",
            f"{smallest_to_largest(way for way in ways if 'bfloat16' in way)} in bfloat16 and float32",
            f"{smallest_to_largest(sizes)} between the whole model",
        ],
        "results/why-cpu/README.md": slower_small,
        "results/verdicts-cpu/README.md": [
            *itertools.chain(*again_rows),
            f"Of the {sum(counts)} models: faster/same/slower/open {'/'.join(map(str, counts))}",
        ],
        "results/headline-whole-cpu/README.md": [
            *(row for part in (whole, bfloat16) for mode in MODES for row in model_rows(part, mode)),
            *whole_rows(avx2, WHOLE_NAME),
            *sizes,
            *ways,
        ],
        "results/headline-whole-cpu/table.csv": table([*of_float32, *of_bfloat16]),
        "results/headline-whole-cpu/avx2/table.csv": table(of_avx2),
    }


if __name__ == "__main__":
    for name, needed in lines().items():
        print(name, *needed, sep="\n", end="\n\n")
