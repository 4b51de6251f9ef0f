"""The pytest plugin, with the fixture ``torchduet``: docs/PYTEST.md.

pytest imports this module whenever it starts, so it imports nothing slow before a test measures.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torchduet import check_names

if TYPE_CHECKING:
    from torchduet.result import Result

RECORD = "--torchduet-record"


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "keep what the fixture torchduet measures as a run in this new folder, which --compare reads"
    parser.getgroup("torchduet").addoption(RECORD, metavar="DIR", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder, once: workers of pytest-xdist are told its place."""
    # an open verdict is no error, also where all other warnings are; -W error:torchduet makes it one
    config.addinivalue_line("filterwarnings", "default:torchduet:UserWarning")
    path = config.getoption(RECORD)
    if path is None or config.option.collectonly or hasattr(config, "workerinput"):
        return
    check_names()
    from runner.errors import UsageError
    from runner.store.run_folder import RunFolder

    try:
        folder = RunFolder.create(Path(path), (), ("pytest", *config.invocation_params.args))
    except UsageError as error:
        text = str(error).replace("--output-dir", RECORD)
        raise pytest.UsageError(text.removesuffix(", or use --resume")) from None
    config.option.torchduet_record = str(folder.path)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (folder := config.getoption(RECORD)) is not None and not config.option.collectonly:
        terminalreporter.write_line(f"torchduet: records in {folder}; --visualize-logs makes its report")


@pytest.fixture(name="torchduet")
def measuring(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """``torchduet(model, inputs, ...)``: as ``torchduet.compare``; the result has assertions."""

    def measured(model: Any, inputs: Any = (), **settings: Any) -> Result:
        check_names()
        from runner.errors import UsageError
        from torchduet import compare

        try:
            with alone():
                result = compare(model, inputs, **settings)
                if why := why_missing(result):
                    pytest.skip(why)
                if (folder := request.config.getoption(RECORD)) is not None:
                    keep(result, Path(folder), request.node.nodeid)
        except UsageError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        again = result._again  # noqa: SLF001 - what an assertion measures again waits, too
        return replace(result, _again=again and alone()(again))

    return measured


def why_missing(result: Result) -> str:
    """Why a compiler that did not pass cannot be used on this machine at all; "" if each can."""
    from harness.backends import backend_names, why_unavailable
    from harness.backends.settings.candidates import compiler_of
    from harness.devices import type_of

    failed = (c.record for c in result if not c.passed and compiler_of(c.record.candidate) in backend_names())
    return next(filter(None, (why_unavailable(r.candidate, type_of(r.job.device)) for r in failed)), "")


@contextmanager
def alone() -> Iterator[None]:
    """Waits until no other test of this user on this machine measures, in whatever process."""
    from runner.store.run_folder import locked

    with Path(tempfile.gettempdir(), f"torchduet-{os.getuid()}.lock").open("a") as file:
        locked(file.fileno(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            locked(file.fileno(), fcntl.LOCK_UN)  # a process that was forked meanwhile has the file, too


def keep(result: Result, folder: Path, test: str) -> None:
    """Appends the records under the name of the test; those of its further measurements have a number."""
    from runner.store.run_folder import RunFolder

    run, (file, _, name) = RunFolder(folder), test.partition("::")
    taken = {record.job.key for record in run.read().processes}
    for number in itertools.count(1):
        own = name if number == 1 else f"{name}#{number}"
        jobs = [replace(r.job, case=replace(r.job.case, suite=file, name=own)) for r in result.records]
        if not taken & {job.key for job in jobs}:
            break
    for record, job in zip(result.records, jobs, strict=True):
        run.append(replace(record, job=job))
