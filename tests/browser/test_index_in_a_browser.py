"""index.html of a folder of runs in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.analysis.derive import summarize
from runner.reports import render_all
from runner.runs.history.page import write_page
from runner.runs.history.runs import read_runs
from runner.store.record_file import append_record
from tests.browser.open_pages import DESKTOP, PHONE, Scheme, new_visit, overflow
from tests.factories import make_job, make_record

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<img src=x onerror=alert(1)> & 100%#?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same, of which lines over time can be drawn, and a damaged one with a hostile name."""
    parent = tmp_path_factory.mktemp("runs")
    for name, speedup, cut_short in (("first", 1.2, False), ("second", 1.5, False), (HOSTILE, 1.1, True)):
        run = parent / name
        run.mkdir()
        records = [make_record(make_job(model), speedup=speedup) for model in ("a", "b")]
        for record in records:
            append_record(run / "records.jsonl", record)
        for file, content in render_all(summarize(records), {"html", "json"}).items():
            (run / file).write_bytes(content)
        if cut_short:
            (run / "records.jsonl").write_bytes(b'{"job": 1}\n')
    write_page(parent, read_runs(parent))
    return parent


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
@pytest.mark.series
def test_it_lists_every_run_quietly_at_any_width(
    browser: Browser, folder: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    visit = new_visit(browser, (folder / "index.html").as_uri(), size, scheme)
    rows = visit.page.locator(".runs tbody tr")
    assert rows.count() == 3
    text = visit.page.locator("main").inner_text()
    for words in ("first", "second", HOSTILE, "damaged", "torch 0.0.0+synthetic", "[1."):
        assert words in text
    assert visit.page.locator(".trends svg").count() >= 1
    assert overflow(visit.page) <= 0
    assert visit.page.locator(".runs td:last-child").first.is_visible()
    assert visit.complaints == []


@pytest.mark.slow
def test_a_link_opens_the_runs_report_by_keyboard_alone(browser: Browser, folder: Path) -> None:
    visit = new_visit(browser, (folder / "index.html").as_uri(), DESKTOP, "light")
    visit.page.get_by_role("link", name=HOSTILE).focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("html[data-ready]")
    assert visit.page.locator("#table tbody tr").count() == 2


def test_it_fits_paper(browser: Browser, folder: Path) -> None:
    visit = new_visit(browser, (folder / "index.html").as_uri(), DESKTOP, "dark")
    assert visit.page.pdf().startswith(b"%PDF")
    visit.page.emulate_media(media="print")
    assert visit.is_white()
