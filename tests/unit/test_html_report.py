"""report.html and summary.json without a browser: what is in them, and what must never be."""

import base64
import hashlib
import itertools
import json
import math
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Failure, Mode, Record, Scalar, Status
from runner.analysis.columns import Column, text_column
from runner.analysis.derive import summarize
from runner.analysis.results import OPERATION, Summary
from runner.names import plain
from runner.reports import html, roofline
from runner.reports.adapters import hud_json
from runner.reports.pages import panels, rows
from runner.reports.parts.sections import sections
from runner.reports.parts.view import MARKDOWN, View
from tests.factories import (
    CANDIDATES,
    HOSTILE_NAMES,
    accuracy_run,
    make_job,
    make_record,
    make_samples,
    synthetic_run,
)

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "scenes" / "pages.txt"
OF_PICTURES = GOLDEN.with_name("drawn.txt")
STATUSES = (
    *(Status.PASS, Status.PASS_DUE_TO_SKIP, Status.FAIL_ACCURACY, Status.CRASH, Status.NOT_COMPILED),
    Status.CANNOT_JUDGE,
)
LARGEST = 6_000_000  # bytes, for 500 records


class Page(HTMLParser):
    """The elements of a page, the texts of its scripts, and its visible text."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._open = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = (dict(attrs).get("id") or "program") if tag == "script" else ""
        if dict(attrs).get("class") == "panels":
            self._open = f"parcel {sum('class' in keys for name, keys in self.elements if name == 'script')}"

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.scripts[self._open] = self.scripts.get(self._open, "") + data
        else:
            self.text += data

    @property
    def rows(self) -> Any:
        return json.loads(self.scripts["rows"])

    @property
    def parcels(self) -> list[Any]:
        texts = [text for name, text in self.scripts.items() if name.startswith("parcel")]
        return [json.loads(unpacked(text)) for text in texts]


def unpacked(text: str) -> str:
    return zlib.decompress(base64.b64decode(text)).decode()


def page(records: Sequence[Record]) -> Page:
    return Page(html.render(summarize(records))["report.html"])


@pytest.fixture(scope="module")
def synthetic() -> Page:
    return page(synthetic_run())


def large_run(jobs: int, rounds: int) -> list[Record]:
    pairs = itertools.product([make_job(f"model_{i}") for i in range(jobs)], CANDIDATES)
    return [make_record(job, candidate, speedup=1.1, rounds=rounds) for job, candidate in pairs]


# -- one file, no network ----------------------------------------------------------


def test_the_policy_allows_these_scripts_and_no_network(synthetic: Page) -> None:
    (policy,) = [a["content"] for t, a in synthetic.elements if t == "meta" and "http-equiv" in a]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    for script in (synthetic.scripts["program"], unpacked(synthetic.scripts["library"])):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_panels_travel_in_parcels_in_the_order_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (html, panels):
        monkeypatch.setattr(module, "CHUNK", 5)
    report = page(large_run(2, 3))
    assert [len(parcel) for parcel in report.parcels] == [5, 3]
    parcels = [panel for parcel in report.parcels for panel in parcel]
    for row, panel in zip(report.rows["rows"], parcels, strict=True):
        model, candidate = row["id"].split("-")[1], row["id"].split("/")[1]
        assert f"--only='{model}'" in panel["reproduce"]
        assert panel["reproduce"].endswith(candidate)


@pytest.mark.long
def test_10_000_records_take_as_long_for_each_as_2_500() -> None:
    """A ratio of processor times, both measured in alternation: with the square of the count it were 16."""
    sizes = (625, 2500)
    runs = {jobs: summarize(large_run(jobs, 10)) for jobs in sizes}
    assert len(html.render(runs[2500])["report.html"]) < 4 * LARGEST
    fastest = dict.fromkeys(sizes, math.inf)
    for _ in range(3):
        for jobs, summary in runs.items():
            began = time.process_time()
            html.render(summary)
            fastest[jobs] = min(fastest[jobs], time.process_time() - began)
    assert fastest[2500] < 8 * fastest[625]


# -- names ---------------------------------------------------------------------------
def test_names_never_become_markup(synthetic: Page) -> None:
    scripts = [attributes.get("id") for tag, attributes in synthetic.elements if tag == "script"]
    assert scripts == ["rows", None, "library", None]  # the first None: the panels
    assert "<" not in synthetic.scripts["rows"]
    assert synthetic.scripts["rows"].isascii()
    shown = {row["texts"][0] for row in synthetic.rows["rows"]}
    assert shown >= {plain(name) for name in HOSTILE_NAMES}


# -- what it says --------------------------------------------------------------------
def test_cases_of_the_same_name_keep_their_own_links() -> None:
    record = make_record(make_job())
    shown = page([record, replace(record, started="later")]).rows["rows"]
    assert [row["id"] for row in shown] == [f"{make_job().key}/inductor", f"{make_job().key}/inductor~2"]


def pages() -> Iterator[tuple[str, list[Record]]]:
    """One model is its numbers before all warnings; several are tiles, in which no control counts."""
    for status in STATUSES:
        yield status.value, [make_record(make_job("mlp"), status=status, speedup=1.5)]
    several = [make_record(make_job(status.value), status=status) for status in (*STATUSES[2:], Status.OOM)]
    yield "kinds of failures", [*several, make_record(make_job("good"), speedup=2.0)]
    yield "synthetic", [*synthetic_run()]


def test_pages_begin_as_before() -> None:
    texts = []
    for name, records in pages():
        report = page(records)
        begins = report.text.partition("All comparisons")[0].rpartition("}\n")[2]
        lines = (" ".join(line.split()) for line in begins.splitlines())
        means = f"means: {len(report.rows['means'])}"
        texts += [f"## {name}, {means}", *filter(None, lines), ""]
    text = "\n".join(texts)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_view_with_this_outlet_is_on_the_page_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "<script>alert(1)</script>"
    columns: tuple[Column[str], ...] = (text_column("two\nlines", str), Column("size", "", len, "size"))
    about = ("attacks", lambda _: [attack, "none"], lambda _: columns, f"against {attack}")
    view: View[Summary, str] = View(*about, notes=lambda *_: [f"note {attack}"])
    monkeypatch.setattr(html, "VIEWS", (view, replace(view, outlets=(MARKDOWN,))))
    report = Page(html.render(summarize(accuracy_run()))["report.html"])
    assert [report.text.count(f"{word}{attack}") for word in ("", "against ", "note ")] == [3, 1, 1]
    assert ("twolines" in report.text, report.elements.count(("td", {"class": "number"}))) == (True, 2)


WORK: dict[str, Scalar] = {
    "flops_per_step": 2e9,
    "bytes_per_step": 1e9,
    "measured_peak_flop_per_s": 1e12,
    "measured_bandwidth_bytes_per_s": 1e11,
}


def drawn() -> Iterator[Record]:
    """A generation, whose rounds are all in the panel; a failure; operations, of which some have no roof."""
    samples = replace(
        make_samples(rounds=5, speedup=2.0),
        baseline_prefill_s=(0.001,) * 5,
        candidate_prefill_s=(0.002,) * 5,
        candidate_minor_faults=(0.0, 0.0, 7.4, 0.0, 0.0),
    )
    yield replace(make_record(make_job("a generation", mode=Mode.GENERATE)), samples=samples)
    message, log = "first\nsecond \x1b[31m", "cases/a/output.log"
    failure = Failure(kind="RuntimeError", message=message, phase="compile", log=log)
    yield replace(make_record(make_job("fails"), status=Status.FAIL_TO_RUN), failure=failure)
    yield make_record(make_job("not checked"), status=Status.PASS_DUE_TO_SKIP, rounds=6, speedup=0.5)
    for name in ("", *WORK):
        metrics = {key: value for key, value in WORK.items() if key != name}
        yield make_record(make_job(f"without {name}", tags=(OPERATION,)), metrics=metrics, rounds=6)
    views = {**WORK, "flops_per_step": None, "bytes_per_step": 0}
    yield make_record(make_job("a view", tags=(OPERATION,)), metrics=views, rounds=6)
    for status in (Status.FAIL_ACCURACY, Status.CRASH):
        job = make_job(status.value, tags=(OPERATION,))
        yield make_record(job, status=status, metrics=WORK, rounds=6)


def test_what_is_drawn_has_the_numbers_as_before() -> None:
    """Of each record: charts of its panel, values of the table, rates, and metrics of dashboards."""
    lines = []
    for record in drawn():
        summary = summarize([record])
        ((panel,),) = panels.panel_chunks(summary)
        (section,) = sections(summary)
        whole, *others = json.loads(hud_json.render(summary)[hud_json.FILE])
        told = {
            **{name: panel[name] for name in ("failure", "samples", "roofline")},
            "values": rows.table_data(summary)["rows"][0]["values"],
            "operations": [operation._asdict() for operation in roofline.operations(section)],
            "limits": [roofline.highest(section, limit) for limit in (roofline.PEAK, roofline.BANDWIDTH)],
            "dashboards": [whole, *(entry["metric"] for entry in others)],
        }
        short = json.loads(json.dumps(told), parse_float=lambda digits: float(f"{float(digits):.6g}"))
        lines += [f"## {record.job.case.name}", *(f"{k}: {json.dumps(v)}" for k, v in short.items()), ""]
    text = "\n".join(lines)
    if os.environ.get("UPDATE_GOLDEN"):
        OF_PICTURES.write_text(text, encoding="utf-8")
    assert text == OF_PICTURES.read_text(encoding="utf-8")


@pytest.mark.parametrize("records", [[], accuracy_run(), [make_record(make_job(), status=Status.CRASH)]])
def test_runs_without_times_make_a_page(records: list[Record]) -> None:
    report = page(records)
    assert (len(report.rows["rows"]), report.rows["means"]) == (len(records), [])
    assert all(panel["samples"] is None for parcel in report.parcels for panel in parcel)
