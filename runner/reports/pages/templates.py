"""The templates of the pages. Inserted values are escaped, and a missing name is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment, Template


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("runner.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def template(name: str) -> Template:
    return _environment().get_template(name)


def source(name: str) -> str:
    """A file that is inserted into a page unchanged."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
