"""The reasons why measuring ended, as records keep them, and sentences on how to narrow an interval."""

from __future__ import annotations

from collections.abc import Callable

from runner.analysis.comparison import Comparison
from runner.analysis.verdicts.decision import stands

# Values of Record.rounds_ended.
FIXED_COUNT = "fixed count"
PRECISE = "precise"
CLEAR_VERDICT = "clear verdict"
MOST_ROUNDS = "most rounds"
OUT_OF_TIME = "out of time"
OUT_OF_BUDGET = "out of budget"
STOPPED = "stopped"
NEEDS_PROCESSES = "needs processes"

CLEAR = 3.0  # a verdict is clear if it still holds with the interval widened so many times
ROUNDS_IN_BUDGET = 10  # with --time-budget, the limit on rounds is max_rounds times this factor

QUIETER = "Use a quieter machine, or set --repeat to the number of rounds named here."
MORE_PROCESSES = "More --processes make the interval narrower."

SENTENCES: dict[str, Callable[[Comparison], str]] = {
    FIXED_COUNT: lambda _: f"Measuring ended by --repeat. {QUIETER}",
    PRECISE: lambda _: (
        "Measuring ended because the interval was narrow enough at that time; the final interval is wider. "
        f"{QUIETER}"
    ),
    CLEAR_VERDICT: lambda _: (
        "Measuring ended because the verdict was clear: no further round could change it. "
        "For a narrower interval, set --repeat to the number of rounds named here."
    ),
    MOST_ROUNDS: lambda found: f"Measuring ended by the limit on rounds ({_rounds(found)}). {QUIETER}",
    OUT_OF_TIME: lambda found: (
        "Measuring ended by the limit on time "
        f"({found.record.job.protocol.max_measure_s:g} s for each job). {QUIETER}"
    ),
    NEEDS_PROCESSES: lambda _: (
        "Measuring ended because no further round of one process could close the verdict. Use --processes=N "
        "or --processes=auto."
    ),
    OUT_OF_BUDGET: lambda _: (
        "Measuring ended because the time budget was spent. Use a quieter machine, or raise --time-budget."
    ),
    STOPPED: lambda _: "Measuring was stopped early. Measure again without stopping the run.",
    "": lambda _: f"Measuring ended by a limit on time, or was stopped early. {QUIETER}",
}


def why_measuring_ended(comparison: Comparison) -> str:
    """Why measuring ended, and what to do. For older records, the reason is derived from the samples."""
    protocol = comparison.record.job.protocol
    sentence = SENTENCES.get(_reason(comparison), SENTENCES[""])(comparison)
    if protocol.processes != 1 and protocol.repeat is None:
        return f"{sentence.split('. ', maxsplit=1)[0]}. {MORE_PROCESSES}"
    return sentence


def _reason(comparison: Comparison) -> str:
    record = comparison.record
    protocol = record.job.protocol
    if record.rounds_ended:
        return record.rounds_ended
    if protocol.repeat is not None:
        return FIXED_COUNT
    assert comparison.estimate is not None
    threshold, alpha = protocol.noise_threshold, protocol.alpha
    if stands(comparison.estimate, noise_threshold=threshold, alpha=alpha, stretch=CLEAR):
        return CLEAR_VERDICT
    in_budget = ROUNDS_IN_BUDGET * protocol.max_rounds
    return MOST_ROUNDS if _rounds(comparison) in (protocol.max_rounds, in_budget) else ""


def _rounds(comparison: Comparison) -> int:
    """The rounds of each process."""
    return comparison.n // (comparison.processes or 1)
