"""The sentences of a summary for users of ``compare()``: its arguments for flags, and no files of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from harness.schema import CompilerOptions, Extras, Protocol
from harness.settings import Flag
from runner.analysis.comparison import Summary
from runner.plan.config import RunConfig
from runner.plan.settings import rows

HOLDERS: Mapping[str, type] = {"protocol": Protocol, "options": CompilerOptions, "extras": Extras}
"""The arguments of ``compare()`` that hold settings."""
OTHERS = {
    "training": "mode='training'",
    "inference": "mode='inference'",
    "output-dir": "output_dir",
    "why": "result.why()",
    **{action: f"the command line's {action}" for action in ("tune", "calibrate")},
}
FLAG = re.compile(r"(?<![\w/])--(?P<name>[a-z][\w-]*)(?:=(?P<value>\w+(?:=\w+)?))?")
FILES = re.compile(r"report\.(?:md|html)|records\.jsonl|\blog\b")  # a sentence with one of them is left out
SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def for_python(summary: Summary, folder: Path | None) -> Summary:
    """The summary with advice in the words of ``compare()``; ``folder``: where it has kept its files."""
    warnings = tuple(
        replace(warning, cases=tuple(map(in_python, warning.cases)), advice=_advice(warning.advice, folder))
        for warning in summary.warnings
    )
    return replace(summary, warnings=warnings, caveats=tuple(map(in_python, summary.caveats)))


def _advice(text: str, folder: Path | None) -> str:
    sentences = SENTENCES.split(text)
    left = [in_python(sentence) for sentence in sentences if not FILES.search(sentence)]
    if len(left) < len(sentences):
        where = f"is in {folder}" if folder else "is kept with compare(..., output_dir='new_folder')"
        left.append(f"The log {where}.")
    return " ".join(left)


def in_python(text: str) -> str:
    """The text with arguments in place of flags."""
    return FLAG.sub(lambda match: _argument(match["name"], match["value"]), text)


def _argument(name: str, text: str | None) -> str:
    """``--repeat`` as ``Protocol(repeat=...)``; the flag's bare words if there is no such setting."""
    setting = _settings().get(f"--{name}")
    holder, _, field = setting[0].partition(".") if setting else ("", "", "")
    if setting is None or holder not in HOLDERS:
        return OTHERS.get(name, name.replace("-", " "))
    return f"{HOLDERS[holder].__name__}({field}={_value(*setting[1:], text)})"


def _value(flag: Flag, many: bool, text: str | None) -> str:
    if flag.metavar is None:
        return repr(flag.means)
    try:
        value = flag.kind.read(text or "")
    except ValueError:  # a placeholder, as in --processes=N
        return "..."
    return repr((value,) if many else value) if text else "..."


@cache
def _settings() -> Mapping[str, tuple[str, Flag, bool]]:
    """Path and flag of each setting by the flag's name, and whether its value is a tuple."""
    return {
        name: (path, flag, row.many)
        for path, _, row in rows(RunConfig)
        if row is not None
        for flag in row.flags
        for name in flag.names
    }
