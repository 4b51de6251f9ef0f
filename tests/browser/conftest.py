"""One browser for all tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.open_pages import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Skips the test where it or Playwright is missing."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install '.[browser]'")
    if not CHROMIUM:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS, timeout=PATIENCE_MS
        )
        yield started
        started.close()
