"""What to know before the numbers of several environments are used."""

from __future__ import annotations

from runner.comparison import Comparison, Found, Verdict
from runner.digits import speedup_text
from runner.environments.compare import is_eager_of


def moved_between_processes(comparison: Comparison) -> Found | None:
    """The reference's eager in a second process must be as fast as in the first."""
    record = comparison.record
    if not is_eager_of(record) or record.env != record.job.environments[0].name:
        return None
    if comparison.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return None
    text = f"the same environment in two processes came out {_speedup(comparison)}"
    advice = (
        "Environments are processes of their own, and processes differ in where their memory lies: trust no "
        "difference between environments of this size, or measure with --processes=5."
    )
    return "The A/A control between processes moved", text, advice


def slower_environment(comparison: Comparison) -> Found | None:
    """Before any compiler: eager itself is slower there than in the reference environment."""
    record = comparison.record
    if not is_eager_of(record) or record.env == record.job.environments[0].name:
        return None
    if comparison.verdict is not Verdict.SLOWER or not record.status.passed:
        return None
    reference = record.job.environments[0].name
    text = f"{_speedup(comparison)} against eager of {reference}"
    advice = "A compiler's speedup over this eager is worth less: compare with the reference's eager."
    return "Eager is slower in another environment", text, advice


def _speedup(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)
