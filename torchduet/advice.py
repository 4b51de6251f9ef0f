"""Advice about findings for users of ``compare()``: the command line's advice names flags and files."""

from __future__ import annotations

from dataclasses import replace

from runner.analysis.comparison import Summary

ALONE = "compare(..., output_dir='new_folder') keeps the log, with the traceback"
ADVICE = {
    "Parity failures": "These candidates compute different results: their times are shown, but not averaged.",
    "Could not run": f"{ALONE}.",
    "Not compiled": f"The compiler did not compile this model, so nothing was compared; {ALONE}.",
    "Timed out": "Raise Protocol(timeout_s=...), or use a smaller model.",
    "Out of memory": "Use a smaller batch, or compare one compiler at a time.",
}


def for_python(summary: Summary) -> Summary:
    """The summary with advice that names no flags, and only files that ``compare()`` writes."""
    warnings = tuple(
        replace(finding, advice=ADVICE.get(finding.title, finding.advice)) for finding in summary.warnings
    )
    return replace(summary, warnings=warnings)
