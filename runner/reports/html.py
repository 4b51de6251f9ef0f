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
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from runner.analysis.results import Result, Summary
from runner.analysis.texts import coarse_note
from runner.reports.lines_plot import shares, svgs, sweeps
from runner.reports.pages.panels import CHUNK, panel_chunks
from runner.reports.pages.rows import counts, identities, table_data, title, verdicts
from runner.reports.pages.templates import source, template
from runner.reports.parts.averages import AVERAGES, averages
from runner.reports.parts.curves import CURVES
from runner.reports.parts.sections import environment_line, protocol_line
from runner.reports.parts.view import CONSOLE, HTML, Lists, View
from runner.reports.views import RESULTS, VIEWS

FORMATS = ("html",)
FILE = "report.html"
DRAWN = {AVERAGES.name: shares, CURVES.name: sweeps}
SHOWN_CASES = 12  # of each warning; the rest is folded


def render(summary: Summary) -> Mapping[str, bytes]:
    library, packed = _library()
    script = source("charts.js") + source("panel.js") + source("page.js")
    text = template("report.html.j2").render(
        title=title(summary),
        environment=environment_line(summary.environment),
        protocol=protocol_line(summary.comparisons),
        period=_period(summary.comparisons),
        **verdicts(summary, identities(summary)),
        views=[*_views(summary)],
        of_results=RESULTS.name,
        coarse_note=coarse_note(summary.comparisons),
        shown_cases=SHOWN_CASES,
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
    return _base64(zlib.compress(text.encode(), 6))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _digest(script: str) -> str:
    return f"sha256-{_base64(hashlib.sha256(script.encode()).digest())}"


def _first_comment(script: str) -> list[str]:
    """The license at the start of the library, which must stay readable."""
    comment = script[: script.index("*/")] if script.startswith("/*") else ""
    return [text for line in comment.splitlines() if (text := line.strip("/* "))]


# -- the views -------------------------------------------------------------------


def _views(summary: Summary) -> Iterator[dict[str, Any]]:
    """Tables or lists of each view. The page has charts and an interactive table instead of the results'."""
    for view in VIEWS:
        if HTML in view.outlets:
            drawn = DRAWN.get(view.name)
            tables = view.tables(summary) if isinstance(view, View) and view is not RESULTS else ()
            yield {
                "name": view.name,
                "title": view.title,
                "lists": [*view.lists(summary)] if isinstance(view, Lists) else (),
                "tables": tables,
                "folded": CONSOLE not in view.outlets,
                "notes": [*dict.fromkeys(note for table in tables for note in table.notes)],
                "bars": [counts(row.comparisons) for row in averages(summary)] if view is AVERAGES else (),
                "pictures": [_base64(svg) for svg in svgs(drawn(summary))] if drawn else (),
            }


def _period(comparisons: Sequence[Result]) -> str:
    """The first start and the last end of the measurements, to the minute."""
    begun = min((c.record.started for c in comparisons if c.record.started), default="")
    ended = max((c.record.ended for c in comparisons), default="")
    times = " to ".join(text[:16].replace("T", " ") for text in (begun, ended))
    return f"{times} UTC" if begun and ended else ""
