"""report.html: one interactive file, from the overall verdicts to single samples.

It opens from disk without network access: its content security policy allows only the embedded
scripts, by their digests. plotly.js, which draws the charts, and the panels of the cases are
compressed. The browser decompresses them when they are needed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

from runner.analysis.estimate import Verdict
from runner.analysis.results import CONTROL, REFERENCE, Comparison, Summary
from runner.analysis.texts import coarse_note
from runner.reports.lines_plot import svgs
from runner.reports.pages.overview import ALWAYS_SHOWN, KINDS, candidates, counts, first_results, title
from runner.reports.pages.panels import CHUNK, panel_chunks
from runner.reports.pages.rows import identities, table_data
from runner.reports.pages.templates import source, template
from runner.reports.parts.averages import AVERAGES, averages, averages_note
from runner.reports.parts.curves import CURVES
from runner.reports.parts.grid import Table
from runner.reports.parts.ratios import CANDIDATES, COMPILED, ENVIRONMENTS, environment_note
from runner.reports.parts.sections import environment_line, protocol_line
from runner.reports.parts.start_up import START_UP
from runner.reports.parts.view import View

FORMATS = ("html",)
FILE = "report.html"
SHOWN_CASES = 12  # of each warning; the rest is folded


def render(summary: Summary) -> Mapping[str, bytes]:
    library, packed = _library()
    script = source("charts.js") + source("panel.js") + source("page.js")
    text = template("report.html.j2").render(
        **_page(summary),
        script=script,
        script_digests=[_digest(script), _digest(library)],
        rows=table_data(summary),
        panels=[
            _packed(json.dumps(chunk, separators=(",", ":"), allow_nan=False))
            for chunk in panel_chunks(summary)
        ],
        chunk=CHUNK,
        library=packed,
        library_license=_first_comment(library),
    )
    return {FILE: text.encode()}


# -- embedding -------------------------------------------------------------------


@cache
def _library() -> tuple[str, str]:
    """plotly.js, as it is and packed. Packing takes most of the time of a page, so it is done once."""
    from plotly.offline import get_plotlyjs

    library = get_plotlyjs()
    return library, _packed(library)


def _packed(text: str) -> str:
    """zlib in base64, for the browser's ``DecompressionStream("deflate")``."""
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _first_comment(script: str) -> list[str]:
    """The license at the start of the library, which must stay readable."""
    comment = script[: script.index("*/")] if script.startswith("/*") else ""
    return [text for line in comment.splitlines() if (text := line.strip("/* "))]


# -- the part above the charts ---------------------------------------------------


def _page(summary: Summary) -> dict[str, Any]:
    results = first_results(summary)
    return {
        "title": title(summary),
        "environment": environment_line(summary.environment),
        "protocol": protocol_line(summary.comparisons),
        "period": _period(summary),
        "results": [(result, _address(summary, result.comparison)) for result in results],
        **_counts(summary),
        "averages": AVERAGES.tables(summary),
        "bars": [
            counts(c for c in part.comparisons if c.compiler == group.compiler)
            for part, group in averages(summary)
        ],
        "averages_note": averages_note(summary),
        "coarse_note": coarse_note(summary.comparisons),
        "warnings": summary.warnings,
        "shown_cases": SHOWN_CASES,
        "caveats": summary.caveats,
        "curves": CURVES.tables(summary),
        "curve_pictures": [base64.b64encode(data).decode() for data in svgs(summary)],
        "environments": _tables(ENVIRONMENTS, summary),
        "environments_note": environment_note(summary) if summary.of(REFERENCE) else "",
        "processes": _tables((*COMPILED, *START_UP), summary),
        "pairs": _tables(CANDIDATES, summary),
        "facts": [
            (name, str(value)) for name, value in summary.environment.items() if value not in (None, "")
        ],
    }


def _tables(views: Iterable[View[Summary, Any]], summary: Summary) -> list[Table]:
    return [table for view in views for table in view.tables(summary)]


def _address(summary: Summary, comparison: Comparison) -> str:
    """The link that opens the panel of the comparison."""
    place = next(place for place, other in enumerate(summary.comparisons) if other is comparison)
    return f"#case={quote(identities(summary)[place], safe='')}"


def _counts(summary: Summary) -> dict[str, Any]:
    comparisons = candidates(summary)
    controls = [c for c in summary.comparisons if c.compiler == CONTROL]
    number = dict(counts(comparisons))
    checked = [c for c in comparisons if c.record.status.counted and c.record.job.protocol.accuracy]
    return {
        "tiles": [(name, number.get(name, 0)) for name in KINDS if name in number or name in ALWAYS_SHOWN],
        "meanings": _meanings(number),
        "passed": sum(c.record.status.passed for c in checked),
        "total": len(checked),
        "controls": _controls(controls),
        "only_controls": bool(controls) and comparisons[0].compiler == CONTROL,
    }


def _meanings(names: Iterable[str]) -> list[tuple[str, str]]:
    """(the kinds that have this meaning, the meaning)"""
    names_of: dict[str, list[str]] = {}
    for name in names:
        names_of.setdefault(KINDS[name], []).append(name)
    return [(" and ".join(together), meaning) for meaning, together in names_of.items()]


def _period(summary: Summary) -> str:
    """The first start and the last end of the measurements, to the minute."""
    begun = min((c.record.started for c in summary.comparisons if c.record.started), default="")
    ended = max((c.record.ended for c in summary.comparisons), default="")
    times = " to ".join(text[:16].replace("T", " ") for text in (begun, ended))
    return f"{times} UTC" if begun and ended else ""


def _controls(controls: list[Comparison]) -> str:
    """One sentence on the A/A controls; empty without them."""
    timed = [c for c in controls if c.verdict is not None]
    if not timed:
        return ""
    moved = sum(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in timed)
    expected = " Expected: in none." if moved else ""
    return (
        f"A/A control: eager differed from itself in {moved or 'none'} of {len(timed)} comparisons.{expected}"
    )
