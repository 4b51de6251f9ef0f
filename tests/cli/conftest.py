"""Settings for tests of the real command line."""

from collections.abc import Iterator

import pytest

from tests.cli.instant_runs import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    http_server = Server(tmp_path_factory.mktemp("server"))
    yield http_server
    http_server.close()
