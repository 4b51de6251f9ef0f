"""Cells of a result's table whose text is more than a number: words, and numbers with their intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from types import MappingProxyType

from harness.schema import ModelFacts, Parity, Record, Status
from runner.analysis.digits import (
    MISSING,
    estimate_text,
    interval_text,
    seconds_text,
    share_text,
    significant,
)
from runner.analysis.results import CONTROL, Estimate, Mean, Ratio, Result
from runner.names import batch_text, plain, ran_batch, ran_case

NOT_CHECKED = "not checked"
COARSE = 0.1  # share of a tensor's size: a pass that would not have shown such an error is no plain pass
MOST = 10.0  # above this share of a tensor's size, a number says no more
MARK = "*"


def compiler_name(compiler: str) -> str:
    """The compiler's name for display; the A/A control is marked."""
    return f"{compiler} (A/A)" if compiler == CONTROL else plain(compiler)


def verdict_text(judged: Result | Ratio, *, counts: bool) -> str:
    """The verdict; in brackets if the speedup does not count, as after a failure of parity."""
    if judged.verdict is None:
        return MISSING
    assumed = " (tau assumed)" if isinstance(judged, Result) and judged.borrowed else ""
    return f"{judged.verdict.value if counts else f'({judged.verdict.value})'}{assumed}"


def millions(model: ModelFacts | None) -> str:
    return MISSING if model is None else significant(model.parameters / 1e6, 3)


def input_text(model: ModelFacts | None) -> str:
    """The shape of the largest input: ``8x128``."""
    texts = () if model is None else model.input_shapes
    shapes = [re.findall(r"\d+", text.rsplit("[", 1)[-1]) for text in texts]
    return "x".join(max(shapes, key=lambda shape: math.prod(map(int, shape)), default=())) or MISSING


def batch_cell(comparison: Result) -> str:
    """The batch that ran; a model that failed to load may not have told it."""
    record = comparison.record
    unknown = record.model is None and ran_batch(record) is None
    return MISSING if unknown else batch_text(ran_case(record))


def verdict_or_status(comparison: Result) -> str:
    """The verdict, or the status if the record did not pass: for tables without a column for parity."""
    return verdict_text(comparison, counts=True) if comparison.passed else comparison.status.value


def processes_cell(comparison: Result) -> str:
    """Standard deviation of the speedup between processes, and the number of processes."""
    estimate = comparison.estimate
    if estimate is None or (estimate.between_sd is None and estimate.assumed_sd is None):
        return MISSING
    if estimate.between_sd is not None:
        return f"{estimate.between_sd:.1%} ({estimate.processes})"
    date = comparison.record.calibrated
    return f"{share_text(estimate.assumed_sd or 0.0)} {f'calibrated {date}' if date else 'assumed'}"


def is_coarse(record: Record) -> bool:
    """Whether it passed, and an error of more than ``COARSE`` of some tensor would have passed, too.

    So is the pass of a candidate that is approximate by design.

    Records of before the rule ``noise`` stay as they were.
    """
    parity = record.parity
    if record.status is not Status.PASS or parity is None:
        return False
    coarse = max(parity.resolution_outputs or 0.0, parity.resolution_gradients or 0.0) > COARSE
    return coarse or parity.sqnr_db is not None


def is_plain_pass(record: Record) -> bool:
    """Whether every tensor was judged, at its first look, and none coarsely."""
    parity = record.parity
    whole = parity is None or not (parity.sensitive_tensors or parity.noise_tensors)
    return record.status.passed and whole and not is_coarse(record)


def resolution_text(parity: Parity) -> str:
    """``to 0.01 % (gradients 2 %, 12 sensitive)``: the largest errors that would have passed; "": unknown."""
    outputs, gradients = parity.resolution_outputs, parity.resolution_gradients
    first = parity.resolution_largest if outputs is None else outputs
    if first is None:
        return ""
    beside = [f"gradients {percent(gradients)}"] if outputs is not None and gradients is not None else []
    beside += [f"{len(parity.sensitive_tensors)} sensitive"] if parity.sensitive_tensors else []
    return f"to {percent(first)}" + (f" ({', '.join(beside)})" if beside else "")


def percent(share: float) -> str:
    return f"{significant(share * 100, 2)} %" if share <= MOST else f"over {MOST * 100:,.0f} %"


def status_word(status: Status) -> str:
    """A candidate whose parity was not checked did not pass a check."""
    return NOT_CHECKED if status is Status.PASS_DUE_TO_SKIP else status.value


def parity_word(record: Record) -> str:
    """The status in a word, with a mark where parity was coarse."""
    return f"{status_word(record.status)}{MARK if is_coarse(record) else ''}"


def coarse_note(comparisons: Iterable[Result]) -> str:
    """What the mark of ``parity_word`` means; "" if no comparison has it."""
    word = f"{Status.PASS.value}{MARK}"
    marked = [comparison.record for comparison in comparisons if is_coarse(comparison.record)]
    bars = {r.job.protocol.approximate_sqnr for r in marked if r.parity and r.parity.sqnr_db is not None}
    bar = f", or an approximate compiler reached {', '.join(f'{bar:g}' for bar in sorted(bars))} dB"
    why = f"an error of {COARSE:.0%} of some tensor's size would have passed{bar if bars else ''}"
    return f"{word}: {why}." if marked else ""


def parity_detail(comparison: Result) -> str:
    """Of a pass, the largest error that would pass; of an approximate candidate, its signal-to-noise ratio
    (in older records its error); of a localized failure, the stage of the compiler and the submodule.

    Both errors are RMS errors relative to the size of their tensor.
    """
    status, parity = comparison.record.status, comparison.record.parity
    if parity is None:
        return MISSING
    if parity.sqnr_db is not None:
        return f"{parity.sqnr_db:.1f} dB"
    if status is Status.PASS:
        return resolution_text(parity) or MISSING
    worst = parity.worst
    if status is Status.APPROXIMATE and worst is not None and worst.scale > 0.0:
        return f"off by {percent(worst.candidate_rmse / worst.scale)}"
    if status is Status.FAIL_ACCURACY and parity.where is not None and parity.where.stage:
        return f"{parity.where.stage} of {parity.where.module or 'the whole model'}"
    return MISSING


def worst_cell(comparison: Result) -> str:
    """RMS error of the tensor that fails first, or is nearest to its limit, as a share of its size; beside it
    the errors of eager and of noisy eager.
    """
    worst = comparison.record.parity.worst if comparison.record.parity is not None else None
    if worst is None:
        return MISSING
    errors = (worst.candidate_rmse, worst.eager_rmse, worst.noisy_rmse)
    shares = [f"{error / (worst.scale or 1.0) * 100:.2g} %" for error in errors if error is not None]
    return f"{shares[0]} ({', '.join(shares[1:])})"


def mean_text(mean: Mean) -> str:
    """None of a single model."""
    return estimate_text(mean.over) if mean.models > 1 else MISSING


def these_models_text(mean: Mean, least: int = 2) -> str:
    """With the other interval."""
    return estimate_text(mean.these) if mean.models >= least else MISSING


def typical_seconds(seconds: Estimate) -> str:
    """The seconds with their interval, if several processes give one."""
    if seconds.low is None or seconds.high is None:
        return seconds_text(seconds.factor)
    return interval_text(seconds.factor, seconds.low, seconds.high)


def typical_parts(estimate: Estimate | None) -> dict[str, float | None] | None:
    """As JSON has it."""
    return {"value": estimate.factor, "low": estimate.low, "high": estimate.high} if estimate else None


def mean_parts(mean: Mean) -> dict[str, float | None]:
    """As JSON has it."""
    these = mean.these and {"these_low": mean.these.low, "these_high": mean.these.high}
    return {"models": mean.models, **(typical_parts(mean.over) or {}), **(these or {})}


FAILURES = MappingProxyType(
    {
        Status.FAIL_ACCURACY: "wrong",
        Status.CANNOT_JUDGE: "not judged",
        Status.EAGER_TWO_RUNS_DIFFER: "not judged",
        Status.NOT_COMPILED: "not compiled",
        Status.RECOMPILES: "recompiles",
    }
)
"""Words for statuses that are neither a pass nor a failure to run."""


def failures(comparisons: Iterable[Result]) -> dict[str, list[Result]]:
    """Those that did not pass, by word. *Crashed*: or ran out of time or memory."""
    words: dict[str, list[Result]] = {word: [] for word in ("wrong", "crashed", *FAILURES.values())}
    for comparison in comparisons:
        if comparison.status.counted and not comparison.passed:
            words[FAILURES.get(comparison.status, "crashed")].append(comparison)
    return words


def failures_text(comparisons: Iterable[Result]) -> str:
    """``(wrong 0, crashed 1, not judged 1)`` with a space before it; "" without a failure."""
    known = failures(comparisons)
    texts = (f"{word} {len(own)}" for word, own in known.items() if own or word in ("wrong", "crashed"))
    return f" ({', '.join(texts)})" if any(known.values()) else ""
