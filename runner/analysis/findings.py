"""The warnings about a run's numbers: ``findings.toml`` has them, this file what its words name."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.declared import CANDIDATE, EAGER, GIGA, finite
from harness.devices import of, type_of
from harness.loading.toml_file import read_toml
from harness.schema import BASELINE, CACHE_FILE, COLD, WARM, Record, Status
from harness.timing.measure import placement
from runner.analysis.columns import columns
from runner.analysis.digits import MISSING, break_even_text, estimate_text, ms_text, with_unit
from runner.analysis.results import Estimate, Finding, Result
from runner.analysis.sweep import median_ms
from runner.analysis.texts import is_coarse, resolution_text
from runner.analysis.verdicts import Limits, compiling
from runner.analysis.verdicts.compiling import LATENCY, WAITING, by_round
from runner.names import counted, cut, is_scaled, suite_labels, where, where_text

MESSAGE_LENGTH = 160  # the whole message is in the record and its log
LEAST_OF_WARM = 1.25  # a warm start is so many times as fast as a cold one
CLOCK_SPREAD = 0.05
MINOR_FAULT_S = 0.5e-6  # assumed, with clearing the page; not measured
LEAST_BEYOND, LEAST_BEYOND_CPU = 2.5, 4.0
"""How many times as fast as its FLOPs at the peak is impossible. A convolution by Winograd's F(2x2, 3x3) has
2.25 times fewer products (Lavin and Gray 2016); the clock of a CPU's peak may be half of its fastest."""
HARMLESS = ("", "set application clocks")  # a user fixed the clock, which makes times steadier


SIGNS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {ast.Lt: operator.lt, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq}
    | {ast.NotEq: operator.ne, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}
)


@cache
def parsed(condition: str) -> ast.expr:
    return ast.parse(condition, mode="eval").body


def value_of(node: ast.expr, names: Callable[[str], Any]) -> Any:  # noqa: PLR0911 - one per expression
    """Of a condition (``passed and memory_ratio < 0.9``: a few expressions of Python, without calls) with
    the values that ``names`` gives. None is a missing value: it makes a comparison false.
    """
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names(name)
        case ast.Attribute(of, name):
            return None if (whole := value_of(of, names)) is None else getattr(whole, name)
        case ast.Subscript(of, ast.Constant(place)):
            return value_of(of, names)[place]
        case ast.Tuple(parts):
            return [value_of(part, names) for part in parts]
        case ast.UnaryOp(ast.Not(), part):
            return not value_of(part, names)
        case ast.BoolOp(sign, parts):
            return (all if isinstance(sign, ast.And) else any)(value_of(part, names) for part in parts)
        case ast.Compare(left, [sign], [right]) if type(sign) in SIGNS:
            sides = value_of(left, names), value_of(right, names)
            return None not in sides and SIGNS[type(sign)](*sides)
    raise ValueError(f"a condition cannot have {ast.unparse(node)!r}")


@cache
def rules() -> tuple[dict[str, str], ...]:
    """The tables of ``findings.toml``, in their order."""
    return tuple(read_toml(Path(__file__).with_suffix(".toml"))["rule"])


def findings(comparisons: Sequence[Result]) -> tuple[Finding, ...]:
    """Every finding of a run, in the order of the rules. Cases with the same title and advice share one."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in rules():
        for known in map(Known, comparisons):
            if known.holds(rule["when"]):
                case = f"{where(known.record, labels)}: {rule['sentence'].format_map(known)}"
                cases.setdefault((rule["title"], rule["advice"].format_map(known)), []).append(case)
    return tuple(Finding(title=t, cases=tuple(texts), advice=a) for (t, a), texts in cases.items())


@dataclass(frozen=True, slots=True)
class Known:
    """What conditions and words may name: the methods without arguments, columns, parts of a comparison."""

    comparison: Result

    @property
    def record(self) -> Record:
        return self.comparison.record

    def value(self, name: str) -> Any:
        """None if it is missing."""
        own, column = getattr(self, name, None), columns().get(name)
        if own is None:
            return column.value(self.comparison) if column is not None else getattr(self.comparison, name)
        return own() if callable(own) else own

    def holds(self, condition: str) -> bool:
        return bool(value_of(parsed(condition), self.value))

    def __getitem__(self, name: str) -> Any:
        """The value as a text: a column in its digits, an estimate, or a share; other parts as they are."""
        value = self.value(name)
        if isinstance(value, (float, str)):
            return with_unit(value, columns()[name].unit if name in columns() else "share")
        if isinstance(value, int):
            return f"{value:,}"
        return MISSING if value is None else estimate_text(value) if isinstance(value, Estimate) else value

    def wrong(self) -> str:
        parity, failure = self.record.parity, self.record.failure
        if parity is None or (failure is not None and not parity.failed):  # at another size, with --shapes
            return failure.message if failure is not None else "failed"
        text, worst = f"{parity.failed} of {parity.tensors} tensors differ too much", parity.worst
        if worst is None:
            return text
        by = f" ({parity.found_by})" if parity.found_by else ""
        if parity.rule == "noise":
            after = f"; it is the first of {parity.failed} that fail, of {parity.tensors} tensors"
            text = f"{worst.name}: {worst.failure}{by}{after if parity.failed > 1 else ''}"
        else:
            reason = worst.failure or f"RMS error {worst.candidate_rmse:.3g}, limit {worst.allowed:.3g}"
            text += f"; worst {worst.name}: {reason} (eager's own error {worst.eager_rmse:.3g}){by}"
        if parity.lower_precision:
            text += f"; the errors are as large as in {parity.lower_precision}, a lower precision than asked"
        return text + (f"; {where_text(parity.where)}" if parity.where is not None else "")

    def unjudged(self) -> str:
        return self.record.parity.unjudged if self.record.parity else "eager's results do not allow it"

    def coarse(self) -> str:
        """Of a pass that says little about some tensors."""
        parity = self.record.parity
        if parity is None or not is_coarse(self.record):
            return ""
        several = f"; {len(parity.noise_tensors)} of {parity.tensors} tensors were not judged"
        return f"{resolution_text(parity)}{several if parity.noise_tensors else ''}"

    def failed(self) -> str:
        status, failure = self.record.status.value, self.record.failure
        if failure is None:
            return status
        message = cut(failure.message, MESSAGE_LENGTH) + (f" (log: {failure.log})" if failure.log else "")
        return f"{status} in phase {failure.phase}: {failure.kind}: {message}"

    def message(self) -> str:
        return self.record.failure.message if self.record.failure else self.record.status.value

    def rounds(self) -> str:
        return str(len(self.record.samples or ()))

    def moved(self) -> bool:
        """Whether the whole interval is beyond the noise, on one side."""
        estimate, limit = self.comparison.estimate, Limits.of(self.record.job.protocol).log
        low, high = (estimate and estimate.interval) or (0.0, 0.0)
        return low > limit or high < -limit

    def rounds_ended(self) -> str:
        ended = self.record.rounds_ended
        return f"{counted(self.comparison.n, 'round')}{f' (ended: {ended})' if ended else ''}"

    def system(self) -> Estimate | None:
        return self.comparison.estimate_of("system malloc")

    def allocator_change(self) -> Estimate | None:
        return self.comparison.estimate_of("allocator")

    def break_even(self) -> str:
        even = self.comparison.break_even
        return "" if even is None else f", break-even steps: {break_even_text(even)}"

    def order(self) -> str:
        """The candidates of inductor in the drawn order in which they compiled; "" where it does not matter.

        On an accelerator they share Triton's kernels on disk, also if each has a process of its own.
        """
        record, job = self.record, self.record.job
        names = [name for name in placement((BASELINE, *job.candidates), job) if name.startswith("inductor")]
        shared = of(job.device).accelerated and record.candidate in names and len(names) > 1
        timed = self.comparison.compile_s is not None and not by_round(record, COLD)
        return ", ".join(names) if shared and timed else ""

    def secretly_cold(self) -> str:
        """A warm start that compiled again, as the compiler's own counters say, or as its time says."""
        for start, stored in ((WARM, "caches"), (CACHE_FILE, "cache file")):
            begun = [c for c in self.record.compilations if c.start == start and not c.failure]
            if again := sum(compiling.is_warm(c.metrics) is False for c in begun):
                return f"{again} of {counted(len(begun), f'{start} start')} found nothing in the {stored}"
            for seconds in (by_round, compiling.first_step_by_round):
                ratio = compiling.paired_ratio(seconds(self.record, COLD), seconds(self.record, start))
                if ratio is not None and ratio.high is not None and ratio.high <= LEAST_OF_WARM:
                    return f"a {start} start is {estimate_text(ratio)} as fast as a cold one"
        return ""

    def waiting(self) -> float:
        """The share of the time of compiling in fresh processes in which other work had the processor."""
        waited, own = (
            sum(sum(by_round(self.record, start, name).values()) for start in (COLD, WARM))
            for name in (WAITING, LATENCY)
        )
        return waited / (waited + own) if waited else 0.0

    def untimed(self) -> str:
        """Of these compilations, those that took no longer than they waited (``by_round`` omits them)."""
        begun = (c for c in self.record.compilations if c.start in (COLD, WARM) and not c.first_calls_s)
        times = [(finite(c.metrics.get(LATENCY)), finite(c.metrics.get(WAITING))) for c in begun]
        count = sum(own is not None and waited is not None and own <= waited > 0 for own, waited in times)
        less = f"; less this waiting, no time is left of {counted(count, 'compilation')} (not counted)"
        return less if count else ""

    def failed_compilation(self) -> str:
        for c in self.record.compilations:
            if c.failure and c.status not in (Status.FAIL_ACCURACY, Status.SKIP):
                return f"{c.status.value} in round {c.round + 1} of the {c.start} start: {c.failure}"
        return ""

    def wrong_form(self) -> str:
        """The stored form that computes something else."""
        wrong = (c for c in self.record.compilations if c.status is Status.FAIL_ACCURACY)
        return next((f"from a {c.start} start: {c.failure}" for c in wrong), "")

    def share_of_faults(self) -> float:
        """The time of the additional page faults of a step, as a share of eager's."""
        sides, step_ms = ("baseline", "candidate"), self.comparison.baseline_ms
        eager, candidate = (self.comparison.number(f"{side}_minor_faults") or 0.0 for side in sides)
        return abs(eager - candidate) * MINOR_FAULT_S * 1000 / step_ms if step_ms else 0.0

    def too_fast(self) -> str:
        """The sides whose step ends before its FLOPs can; "" where the FLOPs or a peak are unknown.

        The bound: FLOPs / the higher of the device's peaks, of its data sheet and measured. Traffic is no
        bound: caches may hold the data, and fusion moves fewer bytes.
        """
        c, samples, sides = self.comparison, self.record.samples, []
        margin = LEAST_BEYOND if of(self.record.job.device).accelerated else LEAST_BEYOND_CPU
        for side, times in ((EAGER, samples.baseline_s), (CANDIDATE, samples.candidate_s)) if samples else ():
            shares = [c.number(f"{side}share_of_{peak}") for peak in ("data_sheet", "measured")]
            rate, flops = c.number(f"{side}tflop_per_s"), c.number("flops_per_step")
            beyond = min(share or 0.0 for share in shares)
            step = median_ms(times) if c.n else None
            if rate and flops and step and step.high and beyond * step.factor / step.high > margin:
                name = "eager" if side == EAGER else "the candidate"
                bound = f"{ms_text(step.factor * beyond)} ms at the peak of {rate / beyond:.3g} TFLOP/s"
                sides.append(
                    f"{name} takes {ms_text(step.factor)} ms; {flops / GIGA:,.3g} GFLOP need {bound}"
                )
        return "; ".join(sides)

    def crowded(self) -> bool:
        """Whether other work used the CPUs: if eager's times vary less, the context switches did no harm."""
        return self.holds("involuntary_switches_per_s > 100 and baseline_cv > 0.1")

    def held_back(self) -> str:
        """The reasons for which the GPU lowered its clock; "" if it did not."""
        low, high = (self.comparison.number(f"gpu_clock_{end}_mhz") or 0.0 for end in ("min", "max"))
        listed = str(self.comparison.value("gpu_throttle_reasons") or "").split("; ")
        lowered = self.comparison.n and low < (1 - CLOCK_SPREAD) * high
        return ", ".join(reason for reason in listed if reason not in HARMLESS) if lowered else ""

    def scaled(self) -> bool:
        return is_scaled(self.record.job.case)

    def device_type(self) -> str:
        return type_of(self.record.job.device)

    def optimizer(self) -> str:
        return self.record.job.protocol.optimizer.rpartition("/")[2]

    def keeps_heap(self) -> bool:
        """Whether malloc kept its heap, as in a worker. The caller of ``compare()`` has malloc as it is."""
        asked, had = self.record.job.extras.allocator, self.record.environment.get("allocator", "default")
        return asked == had == "default" and not of(self.record.job.device).accelerated
