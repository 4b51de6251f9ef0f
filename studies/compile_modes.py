"""Study C: torch.compile's modes beside eager on published models: two runs of the program, and a verdict."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import median

from harness.schema import Record
from harness.settings import choice
from harness.timing.first_calls import FIRST_CALLS
from runner.analysis.comparison import Comparison
from runner.analysis.digits import estimate_text, seconds_text, significant
from runner.analysis.estimate import Estimate
from runner.cli.actions import chosen, measure
from runner.cli.exit_codes import FAILURES, INTERRUPTED, OK
from runner.cli.parser import parsed
from runner.cli.upstream import understood
from runner.errors import UsageError
from runner.reports.parts.sections import environment_line
from runner.store.packed import stored
from runner.store.record_file import read_records
from runner.store.run_folder import new_folder
from studies.expectations import FAILS, HOLDS, OPEN, Expectation, Judged, expectation_table
from studies.journal import RECORDS, is_journal, write_files
from studies.options import StudyOptions, row, usable_device

ROOT = Path(__file__).resolve().parent.parent

# -- the plan ---------------------------------------------------------------------------

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileModesOptions(StudyOptions):
    """All other flags of the command line are those of ``runner.py``, and go to both runs."""

    parts: tuple[str, ...] = row(
        tuple(PARTS),
        "--parts=NAME",
        listed=True,
        kind=choice("part", PARTS),
        help="images (ResNet-152, ViT-B/16), text (Llama-2-7B) or both (default); all other flags are "
        "runner.py's, such as --dtypes=bfloat16 --batch-size=4",
    )

    def checked(self) -> CompileModesOptions:
        return replace(self, device=usable_device(self.device))


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
    theirs = understood(more)[0]
    swept = {SWEPT.get(axis.partition("=")[0]) for axis in theirs.get("sweep", ())}
    ours = [*PARTS[part], *(f"{flag}={value}" for flag, value in values.items() if flag not in swept)]
    if part == "images" and not options.quick:
        ours.append("--only=resnet152")
    return [
        *EACH,
        *(["--freezing"] if cpu else []),  # max-autotune measures kernels only for constant weights there
        *(flag for flag in ours if not theirs.keys() & understood([flag])[0].keys()),
        *more,
    ]


def run(options: CompileModesOptions, more: Sequence[str]) -> int:
    """Measures both parts and judges. ``UsageError`` before anything is written."""
    commands = {part: flags_of(part, options, more) for part in options.parts}
    for words in commands.values():
        typed, _ = understood(words)
        if chosen(typed) is not measure:
            raise UsageError("compile-modes measures; give flags of other actions to runner.py")
        parsed(measure, typed)
    folder = new_folder(options.output_dir, "study-compile-modes")
    for part, words in commands.items():
        code = _measured([sys.executable, str(ROOT / "runner.py"), *words, f"--output-dir={folder / part}"])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (OK, FAILURES):
            return code
    return report(folder, [folder / part for part in commands])


def _measured(command: Sequence[str]) -> int:
    """The exit code. After Ctrl-C, ``subprocess.run`` would kill the run before it has kept its rounds."""
    with subprocess.Popen(command, start_new_session=True) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)


def parts_of(folder: Path) -> list[Path]:
    """The runs of the program in the folder of this study, or the folder itself. [] for another study."""
    paths = (folder, *(folder / part for part in PARTS))
    return [path for path in paths if stored(path / RECORDS).is_file() and not is_journal(path)]


# -- the report -------------------------------------------------------------------------

COMPILE_NOISE = 1.2
"""Compile times that differ by a smaller factor are equal: compilation is timed once, on a shared machine.
On a CPU, default and reduce-overhead compile the same code, so their difference is noise, too."""
MUCH_SLOWER = 2.0  # a first call is slow if it takes this many times as long as later calls
ALIKE, APART = "not told apart", "told apart, in this run"
"""Verdicts on two modes that compile the same code, beside those of ``studies.expectations``."""
EXPECTATIONS = "expectations.md"
NOTE = (
    "Each mode was compiled once. Compile times that differ by less than 20 % count as equal. On a CPU, so "
    "do compile times that differ by less than those of default and reduce-overhead, which compile the same "
    "code there. Modes are compared by their speedups over eager in their own processes; the interval "
    "includes an assumed difference between processes."
)
ON_A_CPU = " On a CPU there are no CUDA graphs: reduce-overhead does the same as default."


def report(folder: Path, runs: Sequence[Path]) -> int:
    """Writes and prints the expectations beside what the ``runs`` show. Returns 1 if a mode has no number."""
    records = [record for run in runs for record in read_records(run / RECORDS).records]
    if not records:
        raise UsageError(f"report: there are no records of a study in {folder}")
    text = "\n".join(_report(records, [(run / "report.md").relative_to(folder) for run in runs]))
    write_files(folder, {EXPECTATIONS: f"{text}\n".encode()})
    print(f"{text}\neverything is in {folder}")
    return OK if all(record.status.passed for record in records) else FAILURES


def _report(records: Sequence[Record], reports: Sequence[Path]) -> Iterator[str]:
    from runner.analysis.derive import compare

    comparisons = compare(records)
    trial = any(record.job.case.scale == "tiny" for record in records)
    passed = sum(record.status.passed for record in records)
    yield "# Study C: torch.compile modes\n"
    yield (
        f"{passed} of {len(records)} (model, mode) passed parity and were timed. Each mode has a process of "
        f"its own with empty compile caches. {environment_line(records[0].environment)}."
        f"{ON_A_CPU if any(_on_cpu(record) for record in records) else ''}"
    )
    if trial:
        yield "\nA trial run: models at scale tiny. The figures mean nothing."
    yield "\nAll numbers: " + ", ".join(f"[{path}]({path})" for path in reports)
    yield "\n## Is the expected story seen here?\n"
    yield from expectation_table(expectations(comparisons), first="model", judged=not trial)
    yield f"\n{NOTE}"
    for record in records:
        if not record.status.passed:
            failure = record.failure.message if record.failure else ""
            yield f"\n- {_title(record)}, {mode_of(record)}: {record.status.value}: {failure}".rstrip(": ")


def _model(record: Record) -> str:
    return f"{record.job.case.name} {record.job.dtype}"


def _title(record: Record) -> str:
    return " ".join((_model(record), *record.job.case.point))


def mode_of(record: Record) -> str:
    return MODES.get(record.candidate, record.candidate)


def _on_cpu(record: Record) -> bool:
    return record.job.device.startswith("cpu")


def expectations(comparisons: Sequence[Comparison]) -> list[Expectation]:
    """Compile time rises and run time falls over the modes; the first call is slow, later ones fast.

    With ``--sweep``: the speedup of each mode depends on the batch, threads or tokens.
    """
    models: dict[str, dict[str, Comparison]] = {}
    sweeps: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        record = comparison.record
        models.setdefault(_title(record), {})[mode_of(record)] = comparison
        if record.job.case.point:
            sweeps.setdefault((_model(record), mode_of(record)), []).append(comparison)
    of_points = (
        Expectation(title=title, expected=expected, found=text, holds=holds)
        for title, modes in models.items()
        for expected, (text, holds) in _of_model(modes)
    )
    of_sweeps = (
        Expectation(title=model, expected=f"the speedup of {mode} varies", found=text, holds=holds)
        for (model, mode), points in sweeps.items()
        for text, holds in (_over_points(min(points, key=_place), max(points, key=_place)),)
    )
    return [*of_points, *of_sweeps]


def _of_model(modes: Mapping[str, Comparison]) -> Iterator[tuple[str, Judged]]:
    noise = COMPILE_NOISE
    for first, second in combinations([mode for mode in MODES.values() if mode in modes], 2):
        former, latter = modes[first], modes[second]
        if second == "reduce-overhead" and _on_cpu(former.record):
            factor = _compile_factor(former, latter) or 1.0
            noise = max(noise, factor, 1 / factor)
            yield f"{second} is {first}, without CUDA graphs", _alike(former, latter)
        else:
            yield f"compile time rises from {first} to {second}", _compile_time(former, latter, noise)
            yield f"run time falls from {first} to {second}", _run_time(former, latter)
    yield "the first call is slow, later ones are fast", _first_calls([c.record for c in modes.values()])


def _compile_factor(former: Comparison, latter: Comparison) -> float | None:
    first, second = former.compilation_latency_s, latter.compilation_latency_s
    return second / first if first and second else None


def _alike(default: Comparison, other: Comparison) -> Judged:
    text, _ = _run_time(default, other)
    change, factor = between(default, other), _compile_factor(default, other)
    if change is None:
        return text, OPEN
    text += f", compiled in {significant(factor, 2)} times the time" if factor else ""
    return text, ALIKE if change.within(1) else APART


def _compile_time(former: Comparison, latter: Comparison, noise: float) -> Judged:
    factor = _compile_factor(former, latter)
    if factor is None:
        return "not both were compiled", OPEN
    first, second = (seconds_text(c.compilation_latency_s or 0.0) for c in (former, latter))
    holds = HOLDS if factor > noise else FAILS if factor < 1 / noise else OPEN
    return f"{first} s -> {second} s, {significant(factor, 2)} times", holds


def _run_time(former: Comparison, latter: Comparison) -> Judged:
    change = between(former, latter)
    if change is None:
        return "not both were timed", OPEN
    text = f"{estimate_text(change)} as fast as {mode_of(former.record)}"
    return text, OPEN if change.within(1) else HOLDS if change.log > 0 else FAILS


def _place(comparison: Comparison) -> tuple[int, ...]:
    return tuple(comparison.record.job.case.at.values())


def _over_points(first: Comparison, last: Comparison) -> Judged:
    """The speedup at the last point of a sweep over that at the first one: chosen before they are seen."""
    change = between(first, last)
    if change is None:
        return "not both were timed", OPEN
    ends = (" ".join(comparison.record.job.case.point) for comparison in (last, first))
    text = f"{estimate_text(change)} at {' over that at '.join(ends)}"
    return text, OPEN if change.within(1) else HOLDS


def _first_calls(records: Sequence[Record]) -> Judged:
    calls = [record.first_calls_s for record in records if len(record.first_calls_s) > FIRST_CALLS]
    factors = [seconds[0] / median(seconds[FIRST_CALLS:]) for seconds in calls]
    if not factors:
        return "no later calls", OPEN
    slow = sum(factor > MUCH_SLOWER for factor in factors)
    span = " to ".join(dict.fromkeys(significant(f, 2) for f in (min(factors), max(factors))))
    text = f"the first takes {span} times as long, {slow} of {len(factors)} modes"
    return text, HOLDS if slow == len(factors) else FAILS


def between(former: Comparison, latter: Comparison) -> Estimate | None:
    """Speed of the second mode relative to the first. Each is compared with eager of its own process.

    The interval includes an assumed difference between processes: one process of each cannot show it.
    """
    from runner.analysis.verdicts.decision import difference

    first, second = (c.estimate if c.record.status.passed else None for c in (former, latter))
    return difference(first, second)
