"""Study F: the published speedups of inductor on one core, each beside the same model here.

Intel posts them since December 2022: inference, float32, batch 1. One run of the program measures every model
of ``published.csv`` that the suites have, with plain and with frozen weights in the same rounds.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.schema import Record
from runner.analysis.derive import compare
from runner.analysis.digits import estimate_text
from runner.analysis.results import Estimate
from runner.analysis.statistics import geomean
from runner.errors import UsageError
from runner.reports.parts.sections import environment_line
from runner.store.record_file import stored
from runner.store.run_folder import RECORDS, read_run
from studies.journal import is_journal
from studies.options import OneCoreOptions
from studies.program import check, replaced, run_program
from studies.report import FAILS, HOLDS, OPEN, Report, part, table

PLAIN, FROZEN = COMPILERS = ("inductor", "inductor[freezing=True]")
FLAGS = {
    "--devices": "cpu",
    "--dtypes": "float32",
    "--scale": "full",
    "--batch-size": "1",
    "--compilers": ",".join(COMPILERS),
    "--timeout": "3600",
}
SWITCHES = ("--inference", "--fixed-batch")
QUICK = ("lcnet_050", "mnasnet_100", "MobileBertForMaskedLM")
REPEATED = 2.0  # pooled deviations of published numbers by which ours may differ, beyond its interval
BUILDS = ("sebotnet33ts_256",)  # whose two numbers are of two builds, before and after a regression
NO_NUMBER, TRIAL = "no number", " A trial: the figures mean nothing."
KINDS = (HOLDS, FAILS, OPEN, NO_NUMBER)
Estimates = Mapping[tuple[str, str], Estimate]
OVERALL = {"huggingface": "1.02 (2022), 1.15 (2023)", "timm_models": "1.10 (2022), 1.37 (2023)"}
"""The source's geometric means over all of its models: dev-discuss.pytorch.org 874 and 1117."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The numbers that were published of one model."""

    suite: str
    model: str
    family: str
    numbers: list[tuple[str, float]] = field(default_factory=list)  # (date, speedup)

    @property
    def log(self) -> float:
        return statistics.fmean(math.log(speedup) for _, speedup in self.numbers)

    def text(self) -> str:
        return ", ".join(f"{speedup:.2f} ({date})" for date, speedup in self.numbers)


def published() -> Mapping[str, Published]:
    """By model, in the order of the file."""
    models = dict[str, Published]()
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            fresh = Published(suite=row["suite"], model=row["model"], family=row["family"])
            known = models.setdefault(fresh.model, fresh)
            known.numbers.append((row["date"], float(row["speedup"])))
    return models


def deviation(models: Iterable[Published]) -> float:
    """Pooled standard deviation of the logarithm of a published number, of models that have several."""
    several = [m for m in models if len(m.numbers) > 1 and m.model not in BUILDS]
    squares = sum((math.log(x) - m.log) ** 2 for m in several for _, x in m.numbers)
    return math.sqrt(squares / sum(len(m.numbers) - 1 for m in several))


def holds(ours: Estimate | None, theirs: Published, spread: float) -> str:
    """Whether a published number lies in our interval, widened by what published numbers differ among
    themselves. An interval that holds 1, too, cannot tell a published gain from none."""
    if ours is None:
        return NO_NUMBER
    if ours.interval is None:
        return OPEN
    logs, wide = [math.log(x) for _, x in theirs.numbers], REPEATED * spread
    low, high = ours.interval
    if not any(low - wide <= log <= high + wide for log in logs):
        return FAILS
    return OPEN if low <= 0.0 <= high and min(map(abs, logs)) > wide else HOLDS


def flags_of(options: OneCoreOptions, more: Sequence[str]) -> list[str]:
    """The command line of the run. The flags in ``more`` replace those of the study."""
    models = QUICK if options.quick else published()
    scale = {"--scale": "tiny", "--repeat": "6"} if options.quick else {}
    threads = {"--threads": str(options.threads or 1)}
    flags = {"--suites": "huggingface,timm_models", "--only": ",".join(models), **FLAGS, **threads, **scale}
    return replaced([*SWITCHES, *(f"{flag}={value}" for flag, value in flags.items())], more)


def run(options: OneCoreOptions, _: Sequence[str], more: Sequence[str]) -> Path:
    """Measures, or goes on where an earlier part has stopped; returns the folder."""
    folder, limit = options.output_dir, f"--time-limit={options.part_s:g}s"
    if folder is None:
        raise UsageError("--output-dir: name the folder, which the command of a later day continues")
    if stored(folder / RECORDS).is_file():
        if more:
            raise UsageError(f"{more[0]}: {folder} goes on as it began; leave this out, or name a new folder")
        words = [f"--resume={folder}", limit]
    else:
        words = [*flags_of(options, more), limit, f"--output-dir={folder}"]
        check("one-core", words)
    run_program(words, "one-core: the run")
    return folder


# -- the report ------------------------------------------------------------------------------------


def is_of(folder: Path) -> bool:
    """Whether the folder is a run of this study: of the program, with these compilers at batch 1."""
    there = stored(folder / RECORDS).is_file() and not is_journal(folder)
    records = read_run(stored(folder / RECORDS)).records if there else ()
    return any(set(COMPILERS) <= set(record.job.candidates) for record in records)


def render(folder: Path) -> Report:
    records = read_run(stored(folder / RECORDS)).records
    if not records:
        raise UsageError(f"report: there are no records of a study in {folder}")
    models, ours = published(), estimates(records)
    spread = deviation(models.values())
    lines, judged = list[list[str]](), defaultdict[str, list[str]](list)
    for model in models.values():
        cells = []
        for compiler in COMPILERS:
            estimate = ours.get((model.model, compiler))
            verdict = holds(estimate, model, spread)
            judged[compiler].append(verdict)
            cells += [estimate_text(estimate) if estimate else "-", verdict]
        if (model.model, PLAIN) in ours or (model.model, FROZEN) in ours:
            lines.append([model.model, model.family, model.text(), *cells])
    counts = [[name, *(str(of.count(kind)) for kind in KINDS), str(len(of))] for name, of in judged.items()]
    others = [(file.parent.name, estimates(read_run(file).records)) for file in folder.glob(f"*/{RECORDS}*")]
    varied = [
        [model, models[model].text(), compiler, condition, estimate_text(estimate)]
        for condition, under in others
        for (model, compiler), estimate in under.items()
        if model in models
    ]
    trial = any(record.job.case.scale == "tiny" for record in records)
    where = f"{environment_line(records[0].environment)}.{TRIAL if trial else ''}"
    blocks = [
        "# Study F: one core",
        f"{len(lines)} of {len(models)} models with a published number have ours. {where}",
        *part("one-core", table(("compiler", *KINDS, "models"), counts)),
        table(("models", "n", "published", "plain", "frozen weights"), list(_means(models, ours))),
        table(("model", "family", "published", "plain", "holds", "frozen weights", "holds"), lines),
        "## The same models under other conditions" if varied else "",
        table(("model", "published", "compiler", "condition", "ours"), sorted(varied)) if varied else "",
    ]
    missing = [f"{r.job.case.name}, {r.candidate}: {r.status.value}" for r in records if not r.status.passed]
    return Report(name="one-core.md", blocks=[*blocks, *(f"- {line}" for line in missing)], failures=missing)


def estimates(records: Sequence[Record]) -> Estimates:
    """(model, compiler) -> the speedup, of what passed parity."""
    passed = [result for result in compare(records) if result.record.status.passed]
    return {(r.record.job.case.name, r.record.candidate): r.estimate for r in passed if r.estimate}


def _means(models: Mapping[str, Published], ours: Estimates) -> Iterable[Sequence[str]]:
    """Geometric means of the models that have all three numbers; the source's own are of all its models."""
    whole = [m for m in models.values() if all((m.model, c) in ours for c in COMPILERS)]
    groups = defaultdict[str, list[Published]](list)
    for model in whole:
        groups[model.suite].append(model)
        groups[model.family].append(model)
    for group, members in groups.items():
        means = [geomean([ours[m.model, c] for m in members]).over for c in COMPILERS]
        source = statistics.fmean(m.log for m in members)
        overall = f"; of all its models {OVERALL[group]}" if group in OVERALL else ""
        texts = [estimate_text(mean) if mean else "-" for mean in means]
        yield [group, str(len(members)), f"{math.exp(source):.2f}{overall}", *texts]
