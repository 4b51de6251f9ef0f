"""The site of README and docs/: ``make docs``. It is read from disk, and needs no network.

The sources are the pages as GitHub shows them, in their places in the repository, so a link between two pages
leads to the same place here and there. A link that leads nowhere is an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "torchduet"
author = "The torchduet developers"
project_copyright = "2026, The torchduet developers"
html_title = "torchduet"

include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md"]
root_doc = "README"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # GitHub's anchors
highlight_language = "none"  # a block without a language is a command or an output

html_theme = "furo"
html_extra_path = ["site"]  # index.html leads to README.html
html_copy_source = False

CONTENTS = {
    "Begin": "docs/GETTING_STARTED docs/YOUR_MODEL docs/MODELS docs/COMPILERS docs/FAQ docs/GLOSSARY",
    "Use": "docs/WHY docs/COMPARE docs/CI docs/PYTEST docs/GPU docs/FLAGS docs/API docs/FORMAT docs/VERSIONS",
    "Trust": (
        "docs/RESULTS docs/FOUND docs/MEASURING docs/STATISTICS docs/PARITY docs/NUMERICS docs/BIAS "
        "docs/RELIABILITY docs/STUDIES"
    ),
    "Build on it": "docs/EXTEND docs/architecture CONTRIBUTING CHANGELOG",
}
"""The pages below each caption of the navigation."""


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """The navigation, which README has as sentences with links."""
    if docname == root_doc:
        for caption, pages in CONTENTS.items():
            names = "\n".join(pages.split())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"


def name_other_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Pages beside results, tests and examples are no part of the site: a link to one becomes its path."""
    elsewhere = r"\[([^]]+)\]\((?:\.\./)?((?:results|tests|examples)/[^)#]+\.md)(?:#[^)]*)?\)"
    source[0] = re.sub(elsewhere, r"\1 (`\2`)", source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.connect("source-read", name_other_pages)
