"""Pages in Debian's chromium, driven by Playwright: opened once, watched for complaints and requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
PATIENCE_MS = 180_000  # on a busy machine even a page takes its time
DESKTOP, PHONE = (1280, 900), (390, 844)


@dataclass(slots=True, kw_only=True)
class Visit:
    """An open page and all that went wrong in it."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def texts(self, column: str) -> list[str]:
        """What the table shows in a column, from top to bottom."""
        place = self.headers().index(column) + 1
        cells: list[str] = self.page.locator(f"#table tbody td:nth-child({place})").all_inner_texts()
        return [text.strip() for text in cells]

    def headers(self) -> list[str]:
        return [
            str(name)
            for name in self.page.locator("#table thead th").evaluate_all(
                "cells => cells.map(cell => cell.dataset.column)"
            )
        ]

    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def wait_for_panel(self, case: str) -> None:
        self.page.wait_for_selector(f'dialog[data-shown="{case}"]')

    def wait_for_no_panel(self) -> None:
        self.page.wait_for_selector("dialog:not([open])", state="attached")

    def is_white(self) -> bool:
        color = self.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return str(color) == "rgb(255, 255, 255)"


def new_visit(browser: Browser, own: str, size: tuple[int, int], scheme: Scheme, address: str = "") -> Visit:
    """Opens ``own`` (a file's URI) at that place; whatever it complains about is noted."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    visit = Visit(page=context.new_page())
    page = visit.page
    page.on("console", lambda message: visit.complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: visit.complaints.append(f"error: {error}"))
    page.on("dialog", lambda box: visit.complaints.append(f"a name became a program: {box.message}"))
    page.on("request", lambda request: note_request(visit, request.url, own))
    page.goto(own + address)
    return visit


def note_request(visit: Visit, url: str, own: str) -> None:
    if url.split("#", maxsplit=1)[0] != own and not url.startswith(("data:", "blob:")):
        visit.complaints.append(f"request: {url}")


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))
