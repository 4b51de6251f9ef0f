"""report.html: one file to look at, from the verdict on everything down to the single sample.

It opens from disk and needs no network; its content security policy forbids it one and allows
the scripts inside it alone, named by their digests. plotly.js, which draws the charts, and the
panels of the cases travel compressed: the browser unpacks them when they are needed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from runner.comparison import CONTROL, Comparison, Finding, GroupSummary, Summary, Verdict
from runner.digits import MISSING, ratio_text, seconds_text
from runner.labels import plain
from runner.reports._environments import Table, environment_note, environment_tables
from runner.reports._html_panels import CHUNK, panel_chunks
from runner.reports._html_rows import NOT_COUNTED, kind, mean_text, table_data
from runner.reports._sections import Section, compiler_name, environment_line, protocol_line, sections
from runner.reports._templates import source, template

FORMATS = ("html",)
FILE = "report.html"
SHOWN_CASES = 12  # of one warning; the rest folds away
VERDICTS = (
    Verdict.FASTER.value,
    Verdict.SAME.value,
    Verdict.INCONCLUSIVE.value,
    Verdict.SLOWER.value,
    NOT_COUNTED,
)


def render(summary: Summary) -> Mapping[str, bytes]:
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    library = get_plotlyjs()
    script = source("charts.js") + source("panel.js") + source("page.js")
    text = template("report.html.j2").render(
        **_page(summary),
        style=Markup(source("report.css")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        script_digests=[_digest(script), _digest(library)],
        rows=Markup(_embedded_json(table_data(summary))),  # noqa: S704 - escaped there
        panels=[_packed(_json(chunk)) for chunk in panel_chunks(summary)],
        chunk=CHUNK,
        library=_packed(library),
        library_licence=_first_comment(library),
    )
    return {FILE: text.encode()}


# -- embedding -------------------------------------------------------------------


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _embedded_json(value: object) -> str:
    """JSON in ASCII that cannot end the element it stands in, nor start another."""
    text = _json(value)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _packed(text: str) -> str:
    """zlib, as the browser's ``DecompressionStream("deflate")`` takes it, in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _first_comment(script: str) -> list[str]:
    """The lines of the licence that the library opens with: it must travel readable."""
    comment = script[: script.index("*/")] if script.startswith("/*") else ""
    return [plain(text) for line in comment.splitlines() if (text := line.strip("/* "))]


# -- the part above the charts ---------------------------------------------------


def _page(summary: Summary) -> dict[str, Any]:
    parts = sections(summary)
    counted = [c for c in summary.comparisons if c.compiler != CONTROL]
    controls = [c for c in summary.comparisons if c.compiler == CONTROL]
    return {
        "title": plain(", ".join(dict.fromkeys(part.suite for part in parts))) or "no records",
        "environment": environment_line(summary.environment),
        "protocol": protocol_line(summary.comparisons),
        "period": _period(summary),
        "tiles": list(_tiles(counted or controls)),
        "passed": sum(c.record.status.passed for c in counted or controls),
        "total": sum(c.record.status.value != "skip" for c in counted or controls),
        "controls": _controls(controls),
        "only_controls": bool(controls) and not counted,
        "verdicts": VERDICTS,
        "averages": [_averages(part) for part in parts if part.groups],
        "warnings": [_warning(finding) for finding in summary.warnings],
        "caveats": [plain(caveat) for caveat in summary.caveats],
        "tables": [_table(table) for table in environment_tables(summary)],
        "tables_note": plain(environment_note(summary)) if summary.across else "",
        "facts": [
            (plain(name), plain(str(value)))
            for name, value in summary.environment.items()
            if value not in (None, "")
        ],
    }


def _period(summary: Summary) -> str:
    """When it was measured: the first start and the last end, to the minute."""
    starts = [c.record.started for c in summary.comparisons if c.record.started]
    ends = [c.record.ended for c in summary.comparisons if c.record.ended]
    if not starts or not ends:
        return ""
    begun, ended = (plain(text[:16].replace("T", " ")) for text in (min(starts), max(ends)))
    return f"{begun} to {ended} UTC"


def _tiles(comparisons: list[Comparison]) -> Iterator[tuple[str, int]]:
    found = Counter(kind(c) for c in comparisons)
    yield from ((name, found[name]) for name in VERDICTS)


def _controls(controls: list[Comparison]) -> str:
    """What the A/A control says, in one sentence; nothing without one."""
    timed = [c for c in controls if c.verdict is not None]
    if not timed:
        return ""
    moved = sum(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in timed)
    if not moved:
        return f"A/A control: eager against itself never moved, in {len(timed)} comparisons."
    return f"A/A control: eager against itself moved in {moved} of {len(timed)} comparisons; it must not."


def _averages(part: Section) -> dict[str, Any]:
    return {"title": part.title, "groups": [_group(group) for group in part.groups]}


def _group(group: GroupSummary) -> dict[str, Any]:
    counts = [(name, group.verdicts[name]) for name in VERDICTS if name in group.verdicts]
    counts.append((NOT_COUNTED, group.total - sum(count for _, count in counts)))
    latency, memory = group.mean_compilation_latency_s, group.mean_memory_ratio
    return {
        "compiler": compiler_name(group.compiler),
        "passed": f"{group.pass_share:.0%}, {group.passed}/{group.total}",
        "geomean": mean_text(group),
        "averaged": f"{group.averaged}/{group.total}",
        "compilation": MISSING if latency is None else f"{seconds_text(latency)} s",
        "memory": MISSING if memory is None else ratio_text(memory),
        "counts": [(name, count) for name, count in counts if count],
    }


def _table(table: Table) -> dict[str, Any]:
    """Plain rows, each cell with whether it is a number."""
    return {
        "title": plain(table.title),
        "header": list(zip(table.header, table.numbers, strict=True)),
        "rows": [
            [(plain(text), number) for text, number in zip(row, table.numbers, strict=True)]
            for row in table.rows
        ],
    }


def _warning(finding: Finding) -> dict[str, Any]:
    cases = [plain(case) for case in finding.cases]
    return {
        "title": plain(finding.title),
        "count": len(cases),
        "advice": plain(finding.advice),
        "cases": cases[:SHOWN_CASES],
        "more": cases[SHOWN_CASES:],
    }
