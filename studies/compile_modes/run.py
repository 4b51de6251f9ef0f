"""Study C: torch.compile's modes beside eager on published models, as two runs of the program.

Its report says whether compile and run times of the modes tell the expected story.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median

from harness.schema import Record
from harness.timing.first_calls import FIRST_CALLS
from runner.analysis.derive import compare
from runner.analysis.digits import estimate_text, seconds_text, significant
from runner.analysis.results import Result
from runner.analysis.verdicts.decision import difference
from runner.cli.upstream import understood
from runner.errors import UsageError
from runner.reports.parts.sections import environment_line
from runner.store.record_file import read_records, stored
from runner.store.run_folder import RECORDS, new_folder
from studies.journal import is_journal
from studies.options import CompileModesOptions
from studies.program import check, replaced, run_program
from studies.report import (
    FAILS,
    HOLDS,
    OPEN,
    Expectation,
    Judged,
    Report,
    beyond,
    expectation_table,
    part,
    span,
)

MODES = {
    "inductor": "default",
    "inductor_reduce_overhead": "reduce-overhead",
    "inductor_max_autotune": "max-autotune",
}
"""Compiler of this project -> mode of torch.compile, in the order of the published story."""
PARTS = {
    "images": ("--suites=timm_models", "--inference", "--only=vit_base_patch16_224"),
    "text": ("--suites=huggingface", "--generate", "--only=Llama_2_7B"),
}
# in one process, a later mode would use what an earlier mode compiled
EACH = ("--isolate", "--cold-start-latency")
QUICK = {"--scale": "tiny", "--repeat": "6", "--compilers": "inductor,inductor_max_autotune"}
ON_CPU = {"images": {"--batch-size": "2"}, "text": {"--scale": "small"}}
ON_GPU = {"images": {}, "text": {"--prompt-tokens": "512", "--new-tokens": "128"}}
SWEPT = {"batch": "--batch-size", "threads": "--threads", "sequence": "--prompt-tokens"}
"""Axis of ``--sweep`` -> the flag that it replaces."""
COMPILE_NOISE = 1.2
"""Compile times that differ by a smaller factor are equal: compilation is timed once, on a shared machine.
On a CPU, default and reduce-overhead compile the same code, so their difference is noise, too."""
MUCH_SLOWER = 2.0  # a first call is slow if it takes this many times as long as later calls
ALIKE, APART = "not told apart", "told apart, in this run"
"""Verdicts on two modes that compile the same code, beside those of ``studies.report``."""
EXPECTATIONS = "expectations.md"
ON_A_CPU = " On a CPU there are no CUDA graphs: reduce-overhead does the same as default."


def flags_of(part: str, options: CompileModesOptions, more: Sequence[str]) -> list[str]:
    """The command line of one run. The flags in ``more`` replace those of the study."""
    cpu = options.device == "cpu"
    values = {
        "--devices": options.device,
        "--dtypes": "float32" if cpu else "bfloat16",
        "--compilers": ",".join(MODES),
        "--scale": "full",
        "--timeout": "3600",
        "--processes": "1",
        **({"--threads": str(options.threads)} if options.threads else {}),
        **(QUICK if options.quick else (ON_CPU if cpu else ON_GPU)[part]),
    }
    swept = {SWEPT.get(axis.partition("=")[0]) for axis in understood(more)[0].get("sweep", ())}
    ours = [*PARTS[part], *(f"{flag}={value}" for flag, value in values.items() if flag not in swept)]
    if part == "images" and not options.quick:
        ours.append("--only=resnet152")
    # max-autotune measures kernels only for constant weights there
    return [*EACH, *(["--freezing"] if cpu else []), *replaced(ours, more)]


def run(options: CompileModesOptions, _: Sequence[str], more: Sequence[str]) -> Path:
    """Measures the parts; returns the folder. ``UsageError`` before anything is written."""
    commands = {part: flags_of(part, options, more) for part in options.parts}
    for words in commands.values():
        check("compile-modes", words)
    folder = new_folder(options.output_dir, "study-compile-modes")
    for name, words in commands.items():
        run_program([*words, f"--output-dir={folder / name}"], f"compile-modes: the run of {name}")
    return folder


# -- the report ----------------------------------------------------------------------------------


def is_of(folder: Path) -> bool:
    return bool(parts_of(folder))


def parts_of(folder: Path) -> list[Path]:
    """The runs of the program in the folder of this study, or the folder itself. [] for another study."""
    paths = (folder, *(folder / part for part in PARTS))
    return [path for path in paths if stored(path / RECORDS).is_file() and not is_journal(path)]


def render(folder: Path) -> Report:
    """The expectations beside what the runs in the folder show. A mode without a number is a failure."""
    runs = parts_of(folder)
    records = [record for run in runs for record in read_records(run / RECORDS).records]
    if not records:
        raise UsageError(f"report: there are no records of a study in {folder}")
    reports = [(run / "report.md").relative_to(folder) for run in runs]
    trial = any(record.job.case.scale == "tiny" for record in records)
    failures = [
        f"{_title(r, *r.job.case.point)}, {mode_of(r)}: {r.status.value}"
        + (f": {r.failure.message}" if r.failure and r.failure.message else "")
        for r in records
        if not r.status.passed
    ]
    rows = expectations(compare(records))
    blocks = [
        "# Study C: torch.compile modes",
        (
            f"{len(records) - len(failures)} of {len(records)} (model, mode) passed parity and were timed. "
            "Each mode has a process of its own with empty compile caches. "
            f"{environment_line(records[0].environment)}.{ON_A_CPU if any(map(_on_cpu, records)) else ''}"
        ),
        "A trial run: models at scale tiny. The figures mean nothing." if trial else "",
        "All numbers: " + ", ".join(f"[{path}]({path})" for path in reports),
        *part("compile-modes", expectation_table(rows, first="model", judged=not trial)),
        *(f"- {failure}" for failure in failures),
    ]
    return Report(name=EXPECTATIONS, blocks=blocks, failures=failures)


def _title(record: Record, *point: str) -> str:
    return " ".join((record.job.case.name, record.job.dtype, *point))


def mode_of(record: Record) -> str:
    return MODES.get(record.candidate, record.candidate)


def _on_cpu(record: Record) -> bool:
    return record.job.device.startswith("cpu")


def expectations(comparisons: Sequence[Result]) -> list[Expectation]:
    """Compile time rises and run time falls over the modes; the first call is slow, later ones fast.

    With ``--sweep``: the speedup of each mode depends on the batch, threads or tokens.
    """
    models = defaultdict[str, dict[str, Result]](dict)
    sweeps = defaultdict[tuple[str, str], list[Result]](list)
    for comparison in comparisons:
        record = comparison.record
        models[_title(record, *record.job.case.point)][mode_of(record)] = comparison
        if record.job.case.point:
            sweeps[_title(record), mode_of(record)].append(comparison)
    judged = [(title, *row) for title, modes in models.items() for row in _of_model(modes)]
    for (model, mode), points in sweeps.items():
        points.sort(key=lambda c: (*c.record.job.case.at.values(),))
        first, last = points[0], points[-1]  # chosen before they are seen
        names = (" ".join(comparison.record.job.case.point) for comparison in (last, first))
        seen = _speed(first, last, f"at {' over that at '.join(names)}", OPEN, HOLDS, HOLDS)
        judged.append((model, f"the speedup of {mode} varies", seen))
    return [Expectation(title=t, expected=e, seen=seen, holds=holds) for t, e, (seen, holds) in judged]


def _of_model(modes: Mapping[str, Result]) -> Iterator[tuple[str, Judged]]:
    noise = COMPILE_NOISE
    for first, second in combinations([mode for mode in MODES.values() if mode in modes], 2):
        pair = modes[first], modes[second]
        text, times = f"as fast as {first}", [c.compile_s for c in pair]
        factor = times[1] / times[0] if times[0] and times[1] else None
        if second == "reduce-overhead" and _on_cpu(pair[0].record):
            noise = max(noise, factor or 1.0, 1 / (factor or 1.0))
            text += f", compiled in {significant(factor, 2)} times the time" if factor else ""
            alike = _speed(*pair, text, ALIKE, APART, APART)
            yield f"{second} is {first}, without CUDA graphs", alike
        else:
            seen = " s -> ".join(seconds_text(s or 0.0) for s in times)
            seen = f"{seen} s, {significant(factor, 2)} times" if factor else "not both were compiled"
            yield f"compile time rises from {first} to {second}", (seen, beyond(factor, factor, noise))
            yield f"run time falls from {first} to {second}", _speed(*pair, text, OPEN, HOLDS, FAILS)
    yield "the first call is slow, later ones are fast", _first_calls([c.record for c in modes.values()])


def _speed(former: Result, latter: Result, text: str, alike: str, faster: str, slower: str) -> Judged:
    """The speed of the second relative to the first. Each is compared with eager of its own process.

    The interval includes an assumed difference between processes: one process of each cannot show it.
    """
    change = difference(*(c.estimate if c.record.status.passed else None for c in (former, latter)))
    if change is None:
        return "not both were timed", OPEN
    told = alike if change.within(1) else faster if change.log > 0 else slower
    return f"{estimate_text(change)} {text}", told


def _first_calls(records: Sequence[Record]) -> Judged:
    calls = [record.first_calls_s for record in records if len(record.first_calls_s) > FIRST_CALLS]
    factors = [seconds[0] / median(seconds[FIRST_CALLS:]) for seconds in calls]
    if not factors:
        return "no later calls", OPEN
    slow = sum(factor > MUCH_SLOWER for factor in factors)
    text = f"the first takes {span(factors, 2)} times as long, {slow} of {len(factors)} modes"
    return text, HOLDS if slow == len(factors) else FAILS
