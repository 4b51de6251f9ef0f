"""Every misbehaving model of ``tests/zoo`` through the real command line: no result is lost.

``pytest tests/cli/test_zoo.py -m "slow or not slow"`` runs all of them. A group of animals shares one
call of the command line (each has its own worker), the slow groups side by side.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import ANIMALS, ROOT, records
from tests.zoo import animals
from tests.zoo.animals import HOSTILE_NAME
from tests.zoo.expected import CANDIDATES, EXPECTED, GROUPS, Ending, label_of, table

README = ROOT / "tests" / "zoo" / "README.md"
LONGEST_S = 900
BRIEFLY = ("--format=console,csv,json,md",)  # of slow groups; the quick one has the page and the pictures
AT_ONCE = 3  # visits side by side: one of them mostly waits for hangs to end


class Visit:
    """One call of the command line, with the animals of one group."""

    def __init__(self, folder: Path, names: list[str], flags: tuple[str, ...]) -> None:
        self.folder = folder / "run"
        self.names = names
        self.code: int | None = None
        self._flags = flags
        self._temporary = folder / "tmp"

    def run(self) -> Visit:
        words = [f"--suites={ANIMALS}", f"--compilers={','.join(CANDIDATES)}", "--training", "-n4"]
        words += ["--threads=1", *(f"--only={name}" for name in self.names), *self._flags]
        self._temporary.mkdir(parents=True)
        folder = self.folder.parent
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
            self.code = subprocess.run(
                [sys.executable, str(ROOT / "runner.py"), *words, f"--output-dir={self.folder}"],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self._temporary)},
                stdout=output,
                stderr=errors,
                timeout=LONGEST_S,
                check=False,
            ).returncode
        return self

    @property
    def output(self) -> str:
        return (self.folder.parent / "output").read_text()

    @property
    def errors(self) -> str:
        return (self.folder.parent / "errors").read_text()

    def records_of(self, name: str) -> list[dict[str, Any]]:
        return [r for r in records(self.folder) if r["job"]["case"]["name"] == name]

    def left_files(self) -> list[str]:
        """What is still in the run's folder for temporary files, but for torch's own compile caches."""
        return [p.name for p in self._temporary.iterdir() if not p.name.startswith("torchinductor_")]

    def left_processes(self) -> dict[int, str]:
        """Every process with the run in its current folder, command line or environment, and these."""
        texts = {int(process.name): _text_of(process) for process in Path("/proc").glob("[0-9]*")}
        return {pid: text for pid, text in texts.items() if str(self.folder.parent) in text}

    def end(self) -> None:
        for pid in self.left_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _text_of(process: Path) -> str:
    try:
        texts = [(process / name).read_bytes().replace(b"\0", b" ") for name in ("cmdline", "environ")]
        return b"\n".join([bytes((process / "cwd").readlink()), *texts]).decode(errors="replace")
    except OSError:  # ended, a zombie's, or somebody else's
        return ""


Ask = Callable[[str], Visit]


@pytest.fixture(scope="module")
def zoo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The finished visit of a group, with just those animals that some selected test asks for."""
    items: list[Any] = request.session.items
    wanted = {item.callspec.params["name"] for item in items if _is_of_an_animal(item)}
    visits: dict[str, Visit] = {}
    runs: dict[str, Future[Visit]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def visit(group: str) -> Visit:
            if group not in runs:
                for other in _as_slow_as(group):
                    members = [name for name, fault in EXPECTED.items() if fault.group == other]
                    names = [name for name in members if name in wanted] or members[:1]
                    flags = (*GROUPS[other].flags, f"--processes={GROUPS[other].processes}")
                    flags += BRIEFLY if GROUPS[other].slow else ()
                    visits[other] = Visit(tmp_path_factory.mktemp("zoo"), names, flags)
                    runs[other] = pool.submit(visits[other].run)
            return runs[group].result()

        yield visit
        for run in runs.values():
            run.cancel()
    for zoo_visit in visits.values():
        zoo_visit.end()


def _as_slow_as(group: str) -> list[str]:
    return [other for other in GROUPS if GROUPS[other].slow == GROUPS[group].slow]


def _is_of_an_animal(item: Any) -> bool:
    return getattr(item, "originalname", "") == test_animal.__name__


def _marks(group: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if GROUPS[group].slow else []


animal = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=_marks(fault.group), id=label_of(name)) for name, fault in EXPECTED.items()],
)
group = pytest.mark.parametrize("group", [pytest.param(name, marks=_marks(name)) for name in GROUPS])


# -- endings -------------------------------------------------------------------------
@animal
@pytest.mark.series
def test_animal(zoo: Ask, name: str) -> None:
    fault = EXPECTED[name]
    visit = zoo(fault.group)
    run_records = visit.records_of(name)
    assert sorted(record["candidate"] for record in run_records) == sorted(CANDIDATES)
    for record in run_records:
        check(record, fault.endings[record["candidate"]], visit.folder)


def check(record: dict[str, Any], ending: Ending, folder: Path) -> None:
    failure, samples = record["failure"], record["samples"]
    assert record["status"] == ending.status.value, failure
    assert any((ending.note or "") in note for note in record["notes"] or [""])
    assert (failure is not None) == (ending.status not in MEASURED)
    assert (samples is not None) == (ending.status in MEASURED)
    if samples is not None:
        # more where rounds in which another candidate compiled were repeated
        assert len(samples["baseline_s"]) == len(samples["candidate_s"]) >= 4
    if failure is not None:
        assert failure["kind"] == ending.kind or ending.kind is None
        assert failure["phase"] == ending.phase or ending.phase is None
        assert failure["message"].isprintable()
        assert (ending.says or "") in failure["message"]
        assert len(failure["message"]) <= 1000
        assert (folder / failure["log"]).is_file()
    if ending.batch_size is not None:
        assert record["model"]["batch_size"] == ending.batch_size


MEASURED = {"pass", "fail_accuracy", "eager_two_runs_differ", "cannot_judge"}


@pytest.mark.slow
def test_a_model_that_sets_its_own_threads_runs_with_those_asked_for(zoo: Ask) -> None:
    name = "changes_torch_in_build"
    run_records = zoo(EXPECTED[name].group).records_of(name)
    assert {record["environment"]["threads"] for record in run_records} <= {1}


# -- what is left --------------------------------------------------------------------
@group
def test_the_parent_reports_and_does_not_complain(zoo: Ask, group: str) -> None:
    visit = zoo(group)
    failing = any(e.status.value != "pass" for n in visit.names for e in EXPECTED[n].endings.values())
    assert visit.code == (1 if failing else 0)
    assert visit.errors == ""
    assert "Traceback" not in visit.output
    assert all(name in visit.output for name in visit.names if name != HOSTILE_NAME)


@group
def test_nothing_is_left(zoo: Ask, group: str) -> None:
    visit = zoo(group)
    assert visit.left_processes() == {}
    assert visit.left_files() == []


# -- the table -----------------------------------------------------------------------
def test_every_animal_has_an_expected_ending() -> None:
    assert list(EXPECTED) == list(animals.ANIMALS)


def test_the_document_shows_the_table() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split("<!-- table -->\n")
    _, after = rest.split("<!-- end of table -->\n")
    right = f"{before}<!-- table -->\n{table()}<!-- end of table -->\n{after}"
    right = re.sub(r"faults tried: \d+", f"faults tried: {len(EXPECTED)}", right)
    right = re.sub(r"records expected: \d+", f"records expected: {len(EXPECTED) * len(CANDIDATES)}", right)
    if os.environ.get("UPDATE_GOLDEN"):
        README.write_text(right, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == right
    # the one figure that no test can write: run all of them, then put it there by hand
    assert f"with the expected status: {len(EXPECTED) * len(CANDIDATES)}\n" in right
