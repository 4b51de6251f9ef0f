"""The numbers of README and the pages of results, from committed records: ``python -m docs.numbers``.

Writes the tables beside the records, and prints each line that the pages must have.
``tests/unit/test_numbers.py`` fails if a table is another one, and if a page lacks a line or has a row or a
digit of its own.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from scipy.stats import gmean

from docs import of_matrix, of_numerics
from docs.records import (
    AGAIN,
    AVX2,
    BFLOAT16,
    FLOAT32,
    FURTHER,
    JUDGED,
    PROCESSES,
    REGIONAL,
    ROOT,
    SMALL,
    VERDICTS,
    XEON,
    in_suite,
    judged_again,
    judged_today,
    pooled,
    records_below,
    with_further_processes,
)
from harness.loading.python_file import load_file
from harness.schema import COLD, Protocol, Record, Samples, Status
from runner.analysis.columns import columns, frame
from runner.analysis.derive import summarize
from runner.analysis.digits import estimate_text, ms_text, seconds_text, steps_text
from runner.analysis.results import PAIRS, Estimate, PairedEstimate, single
from runner.analysis.statistics import geomean, wilson
from runner.analysis.texts import failures, mean_text
from runner.analysis.verdicts import Limits, Verdict
from runner.analysis.verdicts.between import assumed_in
from runner.analysis.verdicts.decision import difference, judged, verdict
from runner.reports.parts.grid import optional
from runner.runs.why.words import overview
from runner.store.record_file import read_records

if TYPE_CHECKING:
    from runner.analysis.results import GroupSummary
    from runner.runs.why.explain import Why

MODES = ("inference", "training")
WHOLE_NAME, BFLOAT16_NAME, AVX2_NAME, SMALL_NAME = "whole", "whole-bfloat16", "whole-avx2", "small"
SUITES = ("timm_models", "huggingface", "tiny_gpt")
OF_HEADLINE = ("model", "precision", "begun (UTC)", "threads", "--why", "headline")
STATES = ("explained", "suspected", "not explained")
DECIDED = (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER)
OF_TABLE = [
    *("suite", "name", "mode", "dtype", "compiler", "status", "verdict", "speedup", "ci_low", "ci_high", "n"),
    *("processes", "batch_size", "published_batch_size", "parameters", "baseline_ms", "candidate_ms"),
    *("compilation_latency_s", "break_even_steps", "memory_ratio", "open_because", "parity_rule"),
]


def rules(old: Sequence[Record], new: Sequence[Record]) -> str:
    """What RESULTS says of an older rule's verdicts and of today's. ``new``: of ``judged_again``."""
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


def outcomes(numbers: Numbers, key: tuple[str, str, str]) -> dict[str, int]:
    """How many models passed, had wrong results, did not run, and could not be judged."""
    group = numbers.groups[key]
    own = numbers.data[(numbers.data[["compiler", "suite", "mode"]] == [*key]).all(axis=1)]["comparison"]
    failed = {word: len(models) for word, models in failures(own).items()}
    wrong, crashed = failed.pop("wrong"), failed.pop("crashed")
    outcome = {"passed": group.passed, "wrong": wrong, "failed": crashed, "not_judged": sum(failed.values())}
    assert sum(outcome.values()) == group.total
    return outcome


def row(numbers: Numbers, label: str, key: tuple[str, str, str]) -> str:
    """A row of the first page, without its last bar: of the group of this compiler, suite and mode."""
    group, median = numbers.groups[key], numbers.of(*key)["speedup"].median()
    passed, *others = outcomes(numbers, key).values()
    cells = (f"{passed}/{group.total}", *others, f"{median:.2f}x", mean_text(group.mean))
    return f"| {label} | {' | '.join(map(str, cells))} | {'/'.join(map(str, numbers.counts(group)))} |"


def paying(numbers: Numbers, label: str, key: tuple[str, str, str]) -> str:
    """A row of RESULTS: also how many models repay their compilation, and after how many steps."""
    even = numbers.groups[key].break_even
    steps = optional(even.median_of_paying, steps_text)
    return f"{row(numbers, label, key)} {even.pays} of {even.models}, {steps} |"


def averages(numbers: Numbers) -> Iterator[dict[str, Any]]:
    """A row of numbers for each group."""
    for (compiler, suite, mode), group in numbers.groups.items():
        key, counts = (compiler, suite, mode), numbers.counts(group)
        p10, median, p90 = numbers.of(*key)["speedup"].quantile([0.1, 0.5, 0.9])
        even, over = group.break_even, group.mean.over
        yield {
            "suite": suite,
            "mode": mode,
            "compiler": compiler,
            "models": group.total,
            **outcomes(numbers, key),
            "pass_low": group.pass_low,
            "pass_high": group.pass_high,
            "median": median,
            "mean": over and over.factor,
            "low": over and over.low,
            "high": over and over.high,
            "p10": p10,
            "p90": p90,
            **dict(zip(("faster", "same", "slower", "open"), counts, strict=True)),
            "pay": even.pays,
            "steps_of_paying": even.median_of_paying,
            "steps_of_all": even.median,
        }


def csv(rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> list[str]:
    """The lines of a table beside the records."""
    text: str = pd.DataFrame(rows).to_csv(index=False, float_format="%.4g")
    return text.splitlines()


def made_with(records: Iterable[Record]) -> str:
    """The versions that made these records, without torch's build, and the days."""
    packages = {"torch": "torch", "transformers": "transformers", "timm": "timm", "python": "Python"}
    made = pd.DataFrame([{**record.environment, "day": record.started} for record in records])
    seen = {name: made[name].dropna().str.extract(r"([\d.]+)")[0].unique() for name in packages}
    versions = (f"{packages[name]} {' and '.join(texts)}" for name, texts in seen.items())
    days = pd.to_datetime(made["day"]).dt.date
    since = f"{days.min():%-d} to " if days.min() < days.max() else ""
    return f"{', '.join(versions)}, {since}{days.max():%-d %B %Y}"


def table(records: Iterable[Record]) -> list[str]:
    """The lines of the whole models' table of all numbers."""
    return csv(Numbers([*records]).data[OF_TABLE].sort_values(["suite", "name", "mode", "compiler"]))


def in_several_processes(records: Iterable[Record]) -> str:
    """What RESULTS says of the whole models' processes. ``records``: in float32."""
    counts: dict[str, list[int]] = {"inductor": [], "aot_eager": []}
    for record in records:
        if record.candidate in counts and record.job.case.mode.value == "training" and record.samples:
            counts[record.candidate].append(len(record.samples.rounds_by_process))
    several, of_aot = ([count for count in each if count > 1] for each in counts.values())
    (each_of_aot,) = {*of_aot}
    return (
        f"{len(several)} of {len(counts['inductor'])} models have {min(several)} to {max(several)} processes "
        f"with inductor in training in float32, {len(of_aot)} have {each_of_aot} with aot_eager"
    )


def both_ways(first: pd.DataFrame, second: pd.DataFrame, what: str, mode: str) -> dict[str, Any]:
    """Of models that were measured in two ways: both means, and the ends of the ratio of two speedups."""
    both = first.merge(second, on="name", suffixes=("", "_again"))
    change = (both["speedup"] / both["speedup_again"]).set_axis(both["name"]).sort_values()
    return {
        "what": what,
        "mode": mode,
        "models": len(both),
        "first": gmean(both["speedup"]),
        "second": gmean(both["speedup_again"]),
        "smallest": change.iloc[0],
        "of": change.index[0],
        "largest": change.iloc[-1],
        "of_model": change.index[-1],
    }


def ways(
    whole: Numbers, small: Numbers, avx2: Numbers, xeon: Numbers, bf16: Numbers
) -> Iterator[dict[str, Any]]:
    """Of models that were measured whole and small, on two processors, and on one in two precisions."""
    epyc, intel = (part.of("inductor", WHOLE_NAME, "training") for part in (whole, xeon))
    yield both_ways(epyc, intel, "processor: EPYC with AVX-512 / Xeon with it", "training")
    for mode in MODES:
        float32 = whole.of("inductor", WHOLE_NAME, mode)
        without = avx2.of("inductor", AVX2_NAME, mode)
        yield both_ways(float32, without, "processor: EPYC with AVX-512 / without", mode)
        bfloat16 = bf16.of("inductor", BFLOAT16_NAME, mode)
        yield both_ways(bfloat16, float32, "precision: bfloat16 / float32", mode)
        yield both_ways(float32, small.of("inductor", SMALL_NAME, mode), "size: whole / small", mode)


def smallest_to_largest(rows: Iterable[Mapping[str, Any]], what: str) -> str:
    """What BIAS says of the ratios in ``ways``."""
    own = [one for one in rows if one["what"].startswith(what)]
    return f"{min(one['smallest'] for one in own):.2f} to {max(one['largest'] for one in own):.2f}"


def sentences(numbers: Numbers, all_small: Numbers) -> Iterator[str]:
    """What RESULTS says of the small models. ``all_small``: the same models as one suite."""
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


def causes(explanations: Mapping[Path, Why]) -> list[str]:
    """The lines of the table of ``--why``, of the models that were slower again."""
    whole = overview([*explanations.values()])
    header = ("model", "speedup", "cause", "state", "share_of_loss", "setting", "with_it", "parity")
    return csv(dict(zip(header, one, strict=True)) for one in whole.rows if "no loss" not in one)


def by_cause(whys: Sequence[Why]) -> str:
    """How often each cause explains a model that was slower again."""
    rows = overview(whys).rows
    counts = Counter(cause for _, _, cause, state, *_ in rows if state == "explained")
    return ", ".join(f"{cause} {count}" for cause, count in counts.most_common())


def ends(whys: Sequence[Why]) -> str:
    """How the models ended with which ``--why`` was run."""
    states = Counter(state or cause for _, _, cause, state, *_ in overview(whys).rows)
    slower = {state: states[state] for state in STATES if states[state]}
    named = ", ".join(f"{count} {state}" for state, count in slower.items())
    verdicts = Counter(why.plain.verdict for why in whys)
    faster, same = verdicts[Verdict.FASTER], verdicts[Verdict.SAME]
    undecided = states["no loss"] - faster - same
    others = {"faster": faster, "the same": same, "not decided": undecided}
    more = "".join(f", {count} {word}" for word, count in others.items() if count)
    return f"{sum(slower.values())} are slower again ({named}){more}."


def whole_explained(whys: Mapping[Path, Why], whole: Numbers, bfloat16: Numbers) -> tuple[str, list[str]]:
    """What README and RESULTS say of the slower whole models: how many are explained."""
    precisions = (whole, WHOLE_NAME, "_whole"), (bfloat16, BFLOAT16_NAME, "_bfloat16_whole")
    counts, runs = [], []
    for numbers, suite, ending in precisions:
        slower = numbers.of("inductor", suite, "training").query("verdict == 'slower'")["name"]
        counts.append(len(slower))
        runs.append(_of_folders(whys, {f"{name}{ending}" for name in slower}))
    both = [*itertools.chain(*runs)]
    states = Counter(state or cause for _, _, cause, state, *_ in overview(both).rows)
    again = sum(states[state] for state in STATES)
    return f"{states['explained']} of {again} slower whole models are explained", [
        "{} whole models are slower in training in float32, {} in bfloat16".format(*counts),
        "{} and {} of these: {}".format(*map(len, runs), ends(both)),
        f"Explained by {by_cause(both)}.",
    ]


def small_explained(whys: Mapping[Path, Why], all_small: Numbers) -> str:
    """What RESULTS says of the small models below 1.00x: how many are explained."""
    below = {
        f"{name}{'' if mode == 'training' else f'_{mode}'}"
        for mode in MODES
        for name in all_small.of("inductor", SMALL_NAME, mode).query("speedup < 1")["name"]
    }
    run = _of_folders(whys, below)
    return f"was run with {len(run)} of {len(below)} that are below 1.00x: {ends(run)}"


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
        f"Re-judged by today's rule, {called} of {count:,} stored sequences of eager against itself are "
        "called different"
    )
    in_statistics = (
        f"Of {count:,} sequences of eager beside a second eager, each judged as one process, the interval "
        f"holds 1 in {held:,}, and {called} ({share} % [{low}, {high}]) are called *faster* or *slower*: "
        f"{called_busy} of {busy} beside a core that another program saturates, {elsewhere}."
    )
    return in_readme, in_statistics


def two_runs() -> str:
    """What STATISTICS says of the processes of a model, two at a time as if they were runs."""
    counts, beyond = Counter[str](), Counter[str]()
    models: dict[tuple[str, str], list[tuple[Record, Samples]]] = {}
    for file in PROCESSES.glob("*/records.jsonl*"):
        for record in read_records(file).processes:
            if record.candidate != "eager" and not record.experiment and record.samples is not None:
                models.setdefault((record.job.key, record.candidate), []).append((record, record.samples))
    for (_, candidate), own in models.items():
        job = own[0][0].job
        mode, step_s = job.case.mode.value, statistics.median(s for _, part in own for s in part.baseline_s)
        tau = assumed_in(job, candidate, [step_s])
        alone = [judged(part.baseline_s, part.candidate_s, assumed_sd=tau) for _, part in own]
        for change in itertools.starmap(difference, itertools.combinations(alone, 2)):
            assert change is not None
            assert change.interval is not None
            low, high = change.interval
            counts[mode] += 1
            beyond[mode] += not low <= 0 <= high
            called = verdict(change, change.p_value, Limits.of(Protocol()))
            assert called not in (Verdict.FASTER, Verdict.SLOWER)
    (count,) = {*counts.values()}
    inference, training = (beyond[mode] for mode in MODES)
    return (
        f"{inference} of {count} intervals miss the truth, no change, in inference, {training} of {count} in "
        "training; none is called."
    )


def faults() -> tuple[str, str]:
    """README's rows: planted faults, but for strides, and right graphs, by PyTorch's rule and by ours."""
    text = (ROOT / "results" / "faults-cpu" / "outcomes.jsonl").read_text(encoding="utf-8")
    planted = pd.DataFrame(map(json.loads, text.splitlines())).query("kind != 'changed strides'")
    found = planted.assign(ours=planted["status"] != "pass").groupby(planted["kind"] != "")
    counts, sizes = found[["field", "ours"]].sum(), found.size()
    field, ours = (
        [f"{count} of {size}" for count, size in zip(counts[rule], sizes, strict=True)] for rule in counts
    )
    return (
        f"found, float32 | {field[1]}, PyTorch's rule | {ours[1]} |",
        f"| right graphs rejected | {field[0]} | {ours[0]} |",
    )


def spread() -> str:
    """README's row: the spread of eager against itself, from the table of ``aa-precision``."""
    text = (ROOT / "results" / "aa-precision" / "table.txt").read_text(encoding="utf-8")
    tables = [pd.read_fwf(StringIO(part)).iloc[1:] for part in text.split("\n\n")]
    models = pd.concat(tables).query("model != 'all'")
    sequential, paired = (
        f"{models[column].astype(float).min():{form}} to {models[column].astype(float).max():{form}} %"
        for column, form in (("sd sequential %", ".0f"), ("sd paired %", ".1f"))
    )
    return f"| {sequential}, one run after the other | {paired} |"


def regional() -> list[str]:
    """What RESULTS says of whole models, compiled by repeated blocks and at once; [] without records."""
    records = [*records_below(REGIONAL)]
    summary, rows, speeds, steps = summarize(records), list[str](), list[Estimate](), list[Estimate]()
    starts = {
        (one.comparison.record.job.key, one.comparison.record.candidate): one.time.factor
        for one in summary.compile_starts
        if one.start == COLD
    }
    for pair in summary.of(PAIRS):
        assert pair.other is not None
        assert isinstance(pair.estimate, PairedEstimate)
        at_once, by_block = (starts[side.job.key, side.candidate] for side in (pair.other, pair.record))
        speeds.append(single(at_once / by_block))
        steps.append(pair.estimate)
        cells = (
            *(
                pair.record.job.case.name,
                *map(seconds_text, (at_once, by_block)),
                f"{at_once / by_block:.1f}x",
            ),
            *(
                *map(ms_text, (pair.estimate.baseline_ms, pair.estimate.candidate_ms)),
                estimate_text(steps[-1]),
            ),
        )
        rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        return []
    stopped = [
        f"{job.case.name} by blocks was stopped after {job.protocol.phase_timeouts_s['compile']:g} s of "
        f"compilation (whole: {seconds_text(starts[job.key, 'inductor'])} s)"
        for job in {r.job.key: r.job for r in records if r.status is Status.TIMEOUT}.values()
    ]
    means = [mean_text(geomean(own)) for own in (speeds, steps)]
    jobs = {record.job.key for record in records}
    whole = f"| geometric mean [95 %] | | | {means[0]} | | | {means[1]} |"
    return [*rows, whole, *stopped, f"{len(rows)} of {len(jobs)} models pass with both", made_with(records)]


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
    whole, bf16 = Numbers(in_suite(WHOLE_NAME, of_float32)), Numbers(in_suite(BFLOAT16_NAME, of_bfloat16))
    avx2, xeon = Numbers(in_suite(AVX2_NAME, of_avx2)), Numbers(in_suite(WHOLE_NAME, by_folder[XEON]))
    counts = xeon.counts(xeon.groups["inductor", WHOLE_NAME, "training"])
    count = f"{whole.groups['inductor', WHOLE_NAME, 'training'].total} models"
    in_readme, in_statistics = controls()
    tables = load_file(ROOT / "results" / "why-cpu" / "tables.py")
    explanations = tables.explanations()
    beside = [row.strip("| ").split(" | ") for row in tables.beside_headline([*explanations.values()])]
    explained, of_whole = whole_explained(explanations, whole, bf16)
    again = load_file(VERDICTS / "again.py").rows
    twice = [[*again(by_folder[first], records_below(second))] for first, second in AGAIN]
    z_inference, z_training, z_new, z_xeon, z_passes = (lines[-1].split()[-1] for lines in twice)
    bandwidth = twice[-1][-2].split()[-1]
    both = [*ways(whole, all_small, avx2, xeon, bf16)]
    parts = ((whole, WHOLE_NAME), (bf16, BFLOAT16_NAME), (all_small, SMALL_NAME))
    return {
        "README.md": [
            *(row(whole, mode, ("inductor", WHOLE_NAME, mode)) for mode in MODES),
            *(count, in_readme, explained, spread(), *faults()),
        ],
        "docs/STATISTICS.md": [in_statistics, two_runs()],
        "docs/RESULTS.md": [
            *(
                paying(part, f"{suite}, {mode}", ("inductor", suite, mode))
                for part, suite in parts
                for mode in MODES
            ),
            *(count, *of_whole, in_several_processes(of_float32)),
            f"standard deviation of z {z_inference} in inference, {z_training} in training, and {z_new}",
            f"an hour apart, by `--processes=auto`: {z_xeon}",
            *(f"in inference by `--processes=auto`: {z_passes}", f"{bandwidth} of the first day's memory"),
            f"of {sum(counts)} at random, this default leaves {counts[-1]} open there",
            *(made_with([*of_float32, *further, *of_bfloat16]), made_with(records)),
            *(*sentences(small, all_small), small_explained(explanations, all_small), rules(older, records)),
            *regional(),
        ],
        "docs/MEASURING.md": [of_matrix.matrix(), of_matrix.main_job()],
        "docs/NUMERICS.md": [*of_numerics.cards(), *of_numerics.trajectories()],
        "docs/BIAS.md": [
            f"{smallest_to_largest(both, 'processor')} on another processor",
            f"{smallest_to_largest(both, 'precision')} in bfloat16 and float32",
            f"{smallest_to_largest(both, 'size')} between the whole model",
        ],
        "results/verdicts-cpu/README.md": [
            *(f"{z_passes} in `whole-again-passes`", f"The jobs measured {bandwidth} of"),
            f"Of the {sum(counts)} models: faster/same/slower/open {'/'.join(map(str, counts))}",
        ],
        "results/why-cpu/causes.csv": causes(explanations),
        "results/why-cpu/headline.csv": csv(dict(zip(OF_HEADLINE, row, strict=True)) for row in beside),
        "results/headline-cpu/averages.csv": csv([*averages(small), *averages(all_small)]),
        "results/headline-whole-cpu/averages.csv": csv([*averages(whole), *averages(bf16), *averages(avx2)]),
        "results/headline-whole-cpu/ways.csv": csv(both),
        "results/headline-whole-cpu/table.csv": table([*of_float32, *of_bfloat16]),
        "results/headline-whole-cpu/avx2/table.csv": table(of_avx2),
    }


if __name__ == "__main__":
    for name, needed in lines().items():
        if name.endswith(".csv"):
            (ROOT / name).write_text("\n".join([*needed, ""]), encoding="utf-8")
        else:
            print(name, *needed, sep="\n", end="\n\n")
