"""The parser of the command line is built once in each process: hundreds of tests read words with it."""

import functools
from collections.abc import Iterator

import pytest

from runner.cli.parser import build_parser


@pytest.fixture(scope="session", autouse=True)
def one_parser() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.cli.parser.build_parser", functools.cache(build_parser))
        yield
