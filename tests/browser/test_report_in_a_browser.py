"""report.html in a real browser: Debian's chromium, driven by Playwright. Skipped where either is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.schema import Record
from runner.analysis.derive import summarize
from runner.names import plain
from runner.reports import html
from runner.reports.pages.panels import CHUNK
from tests.browser.open_pages import DESKTOP, PHONE, Scheme, Visit, new_visit, overflow
from tests.factories import HOSTILE_NAMES, make_job, make_record, synthetic_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CRASHED = "toys-does_not_run-training-cpu-float32-bs8-full/inductor"
GAINS = "toys-gains-training-cpu-float32-bs8-full/inductor"


Open = Callable[..., Visit]


def page_of(records: Sequence[Record], folder: Path) -> Path:
    (folder / "report.html").write_bytes(html.render(summarize(records))["report.html"])
    return folder / "report.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(synthetic_run(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def pages() -> dict[object, Visit]:
    """Pages that are open: most tests only change the address of one."""
    return {}


@pytest.fixture
def open_report(browser: Browser, report: Path, pages: dict[object, Visit]) -> Iterator[Open]:
    """Opens a report; at the end, whatever it asked of the network or complained about fails the test."""
    visits: list[Visit] = []

    def opened(
        address: str = "#",
        size: tuple[int, int] = DESKTOP,
        *,
        file: Path = report,
        scheme: Scheme = "light",
        fresh: bool = False,
    ) -> Visit:
        key = (size, file, scheme)
        visit = None if fresh else pages.get(key)
        if visit is None:
            visit = pages[key] = new_visit(browser, file.as_uri(), size, scheme, address)
            visit.page.wait_for_selector("html[data-ready]")
        else:
            visit.page.evaluate(GO_TO, address)
        visits.append(visit)
        return visit

    yield opened
    complaints = [complaint for visit in visits for complaint in visit.complaints]
    for visit in visits:
        visit.complaints.clear()
    assert complaints == []


GO_TO = """address => new Promise(done => {
  if ((location.hash || "#") === address) return done();
  addEventListener("hashchange", () => setTimeout(done), { once: true });
  location.hash = address;
})"""


@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), pytest.param(PHONE, "dark", marks=pytest.mark.slow)]
)
def test_it_opens_quietly_at_any_width(open_report: Open, size: tuple[int, int], scheme: Scheme) -> None:
    visit = open_report(size=size, scheme=scheme)
    assert visit.page.locator("#table tbody tr").count() == len(synthetic_run())
    assert visit.page.locator("#forest .point").count() > 20
    assert visit.page.locator("#even .point").count() > 15
    assert overflow(visit.page) <= 0
    assert visit.is_white() == (scheme == "light")


@pytest.mark.slow
def test_names_are_shown_as_they_are(open_report: Open) -> None:
    visit = open_report()
    assert set(visit.texts("model")) >= {plain(name) for name in HOSTILE_NAMES}
    ticks = visit.page.locator("#forest .ytick text").all_text_contents()
    assert any(text.startswith("<script>alert(1)</script>") for text in ticks)
    assert any("$x_1$" in text for text in ticks)
    for name in HOSTILE_NAMES:
        visit.page.locator("#table a", has_text=plain(name)).first.click()
        visit.page.wait_for_selector("dialog[data-shown]")
        assert plain(name) in visit.page.locator("#panel-title").inner_text()
        visit.page.keyboard.press("Escape")
        visit.wait_for_no_panel()


def speedups(visit: Visit) -> list[float]:
    """The speedups that the table shows, with the one digit that all of them have."""
    return [round(float(text.split("x")[0]), 1) for text in visit.texts("speedup") if text != "-"]


def test_headers_sort_and_say_so(open_report: Open) -> None:
    visit = open_report()
    plan = visit.texts("model")
    header = visit.page.locator('th[data-column="speedup"]')
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    numbers = speedups(visit)
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) > 20
    assert visit.texts("speedup")[-1] == "-"
    header.locator("button").press("Enter")
    numbers = speedups(visit)
    assert numbers == sorted(numbers)
    assert visit.texts("speedup")[-1] == "-", "what is missing comes last either way"
    header.locator("button").click()
    assert visit.texts("model") == plan


@pytest.mark.slow
def test_filters_meet_and_live_in_the_address(open_report: Open) -> None:
    visit = open_report()
    visit.page.select_option('[data-facet="compiler"]', "inductor")
    visit.page.select_option('[data-facet="precision"]', "float32")
    visit.page.fill("#text", "GAIN")
    assert visit.texts("model") == ["gains"]
    assert visit.page.locator("#count").inner_text() == f"1 of {len(synthetic_run())} comparisons"
    again = open_report(visit.hash(), fresh=True)
    assert (again.texts("model"), again.page.input_value("#text")) == (["gains"], "GAIN")
    again.page.click("#reset")
    assert len(again.texts("model")) == len(synthetic_run())
    assert again.hash() in ("", "#")


def test_a_tile_filters_by_its_verdict(open_report: Open) -> None:
    visit = open_report()
    visit.page.click('.tile[data-verdict="slower"]')
    assert set(visit.texts("verdict")) == {"slower"}
    assert visit.page.locator("#forest .point").count() == len(visit.texts("verdict")), (
        "no averages of a part"
    )
    visit.page.click('.tile[data-verdict="slower"]')
    assert len(visit.texts("verdict")) == len(synthetic_run())


def test_nothing_fits_is_said(open_report: Open) -> None:
    visit = open_report("#text=nosuchmodel")
    assert "No comparison matches" in visit.page.locator("#table tbody").inner_text()
    assert visit.page.locator("#forest").is_hidden()


def test_addresses_from_elsewhere_do_no_harm(open_report: Open) -> None:
    visit = open_report("#suite=%3Cimg%3E&sort=nothing:desc&case=__proto__&order=x&text=")
    assert len(visit.texts("model")) == len(synthetic_run())
    assert not visit.page.locator("dialog").is_visible()


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
@pytest.mark.series
def test_a_panel_opens_with_everything(open_report: Open, size: tuple[int, int], scheme: Scheme) -> None:
    visit = open_report(f"#case={GAINS}", size=size, scheme=scheme)
    visit.wait_for_panel(GAINS)
    panel = visit.page.locator("dialog")
    assert panel.locator(".main-svg").count() >= 3
    text = panel.inner_text()
    for part in ("gains, inductor", "1.50x", "faster", "Parity", "Memory", "Environment", "--only='gains'"):
        assert part in text
    assert panel.locator(".charts .across .point").count() == 40, "20 rounds of both sides"
    assert panel.evaluate("panel => panel.scrollWidth - panel.clientWidth") <= 0


def test_a_panel_by_keyboard_alone(open_report: Open) -> None:
    visit = open_report("#text=gains+float32+inductor")
    visit.page.locator("#table a").first.focus()
    visit.page.keyboard.press("Enter")
    visit.wait_for_panel(GAINS)
    assert visit.page.evaluate("document.activeElement.id") == "panel-title"
    visit.page.keyboard.press("Escape")
    visit.wait_for_no_panel()
    assert visit.page.evaluate("document.activeElement.textContent") == "gains"
    assert "case=" not in visit.hash()
    assert "text=" in visit.hash()


def test_arrows_go_from_case_to_case(open_report: Open) -> None:
    visit = open_report(f"#case={GAINS}")
    visit.wait_for_panel(GAINS)
    visit.page.keyboard.press("ArrowRight")
    visit.wait_for_panel(GAINS.replace("inductor", "torchscript"))
    visit.page.keyboard.press("ArrowLeft")
    visit.wait_for_panel(GAINS)


def test_back_closes_the_panel(open_report: Open) -> None:
    visit = open_report()
    visit.page.locator("#table a").nth(2).click()
    visit.wait_for_panel(GAINS)
    visit.page.go_back()
    visit.wait_for_no_panel()


def test_a_failure_shows_its_message_and_links_its_log(open_report: Open) -> None:
    visit = open_report(f"#case={CRASHED}")
    visit.wait_for_panel(CRASHED)
    failure = visit.page.locator("dialog .failure")
    assert "SIGSEGV" in failure.inner_text()
    assert "made up | for crash" in failure.inner_text()
    assert failure.locator("a").get_attribute("href") == "cases/made-up/output.log"


def test_a_click_on_a_point_opens_its_case(open_report: Open) -> None:
    visit = open_report("#text=gains+float32+inductor")
    visit.page.locator("#forest").scroll_into_view_if_needed()
    box = visit.page.locator("#forest .point").first.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    visit.page.wait_for_selector("#forest .hoverlayer .hovertext")
    visit.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visit.wait_for_panel(GAINS)


@pytest.mark.slow
def test_many_records_stay_usable(open_report: Open, tmp_path: Path) -> None:
    jobs = [make_job(f"model_{i}", candidates=("inductor",)) for i in range(600)]
    records = [make_record(job, speedup=1 + i / 1000, rounds=5) for i, job in enumerate(jobs)]
    visit = open_report(file=page_of(records, tmp_path))
    assert visit.page.locator("#table tbody tr").count() == 200
    visit.page.click("#more")
    assert visit.page.locator("#table tbody tr").count() == 600
    assert visit.page.locator("#forest .point").count() <= 70
    assert "first 30 and the last 30 of 600" in visit.page.locator("#forest-note").inner_text()


@pytest.mark.slow
def test_panels_beyond_the_first_parcel_are_those_of_their_rows(open_report: Open, tmp_path: Path) -> None:
    jobs = [make_job(f"model_{i}", candidates=("inductor",)) for i in range(2 * CHUNK + 1)]
    visit = open_report(file=page_of([make_record(job, rounds=3) for job in jobs], tmp_path))
    for number in (0, CHUNK - 1, CHUNK, 2 * CHUNK):
        case = f"{jobs[number].key}/inductor"
        visit.page.evaluate(GO_TO, f"#case={case}")
        visit.wait_for_panel(case)
        assert f"--only='model_{number}'" in visit.page.locator("dialog").inner_text()


@pytest.mark.slow
def test_the_roofline_and_the_phases_are_drawn(open_report: Open, tmp_path: Path) -> None:
    metrics: dict[str, Any] = {
        "flops_per_step": 2e9,
        "bytes_per_step": 1e9,
        "compile_dynamo_s": 3.0,
        "compile_inductor_s": 2.0,
        "measured_peak_flop_per_s": 1e12,
        "measured_bandwidth_bytes_per_s": 1e11,
    }
    job = make_job("drawn")
    file = page_of([make_record(job, speedup=2.0, metrics=metrics)], tmp_path)
    visit = open_report(f"#case={job.key}/inductor", file=file)
    visit.wait_for_panel(f"{job.key}/inductor")
    panel = visit.page.locator("dialog")
    assert panel.locator(".main-svg").count() >= 5
    text = panel.inner_text()
    assert "Place on the roofline" in text
    assert "of the roof" in text
    assert "Dynamo and all below" in (panel.locator(".charts").nth(1).text_content() or "")


@pytest.mark.slow
def test_it_prints_light_and_whole(open_report: Open) -> None:
    visit = open_report(size=PHONE, scheme="dark")
    assert visit.page.pdf().startswith(b"%PDF")
    visit.page.emulate_media(media="print")
    assert visit.is_white()
    assert visit.page.locator("#filters").is_hidden()
