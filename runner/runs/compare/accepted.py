"""``--accept FILE``: changes that a gate lets pass, each with a reason and the day until which it does.

[[accepted]]
gate = "compile"
result = "huggingface Bert*"            # the beginning of the line that the gate prints; * and ? are any text
reason = "the new fusion pass takes longer, and pays at run time"
expires = 2027-03-31
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.loading.toml_file import read_toml
from runner.errors import UsageError, unknown
from runner.runs.compare.gates import KINDS, GateResult

FLAG = "--accept"
TABLE = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Cases of a gate whose text begins as the pattern ``result`` pass to the end of the day ``expires``."""

    gate: str
    result: str
    reason: str
    expires: date

    def allows(self, gate: str, case: str) -> bool:
        return self.gate == gate and fnmatchcase(case, f"{self.result.replace('[', '[[]')}*")


def accepted_in(path: Path) -> tuple[Accepted, ...]:
    """The entries of the file. ``UsageError`` that names the file and the entry for anything else."""
    try:
        tables = read_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{FLAG}: {path} cannot be read ({why})") from None
    except (ValueError, ModuleNotFoundError) as error:
        raise UsageError(f"{FLAG}: {path} is no TOML ({error})") from None
    entries = tables.get(TABLE)
    if tables.keys() != {TABLE} or not isinstance(entries, list):
        raise UsageError(f"{FLAG}: {path} must hold tables [[{TABLE}]], and nothing else")
    return tuple(_entry(f"{FLAG}: entry {place} of {path}", entry) for place, entry in enumerate(entries, 1))


def _entry(name: str, entry: Any) -> Accepted:
    wanted = tuple(field.name for field in fields(Accepted))
    if not isinstance(entry, dict) or entry.keys() != set(wanted):
        raise UsageError(f"{name} must have {', '.join(wanted)}, and nothing else")
    expires = entry["expires"]
    if not isinstance(expires, date) or isinstance(expires, datetime):
        raise UsageError(f"{name}: expires must be a date without quotes, such as 2027-03-31")
    for key in wanted[:-1]:
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise UsageError(f"{name}: {key} must be a text that is not empty")
    if entry["gate"] not in KINDS:
        raise unknown(name, entry["gate"], "gate", KINDS)
    return Accepted(**entry)


def without_accepted(
    results: Sequence[GateResult], accepted: Sequence[Accepted], today: date
) -> list[GateResult]:
    """The results without the cases that are accepted; a case whose date has passed says so, and fails."""
    judged = []
    for result in results:
        kept: dict[str, list[str]] = {"cases": [], "open": [], "accepted": []}
        every = [*(("cases", case) for case in result.cases), *(("open", case) for case in result.open)]
        for kind, case in every:
            known = [change for change in accepted if change.allows(result.gate.kind, case)]
            if (change := max(known, key=lambda change: change.expires, default=None)) is None:
                kept[kind].append(case)
            elif today <= change.expires:
                kept["accepted"].append(f"{case} (accepted until {change.expires}: {change.reason})")
            else:
                kept[kind].append(f"{case} (was accepted until {change.expires}: {change.reason})")
        cases, undecided, allowed = map(tuple, kept.values())
        judged.append(replace(result, cases=cases, open=undecided, accepted=allowed))
    return judged
