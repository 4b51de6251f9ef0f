"""The templates of the pages. Inserted texts are escaped and printable, and a missing name is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from runner.names import plain

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def _printable(value: object) -> object:
    """A text is one printable line; markup of our own (a subclass of ``str``) stays as it is."""
    return plain(value) if type(value) is str else value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("runner.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["source"] = source
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def template(name: str) -> Template:
    return _environment().get_template(name)


def source(name: str) -> str:
    """A file that is inserted into a page unchanged."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
