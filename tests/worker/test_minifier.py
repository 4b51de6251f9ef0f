"""Torch's own minifier: what its processes leave and return, in words; and one that finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from harness.schema import Case, Job, Mode, Protocol
from harness.worker.localize.minifier import LAUNCHER, OUT_OF_TIME, RESULT, Ended, Tried, try_torch

GRAPH = "print('a graph')\n"


def job(suite: str = "none", sources: dict[str, str] | None = None) -> Job:
    case = Case(suite=suite, name="net", mode=Mode.INFERENCE, batch_size=None, published_batch_size=None)
    return Job(
        case=case,
        device="cpu",
        dtype="float32",
        candidates=("mine",),
        own_compilers=dict(sources or {}),
        protocol=Protocol(threads=1),
    )


class Processes:
    """In place of processes: each name of a log has its end, and may write a file of torch's."""

    def __init__(self, **ends: Ended) -> None:
        self.ends = ends
        self.asked: list[str] = []
        self.words: dict[str, Sequence[str]] = {}
        self.after: list[str | None] = []

    def __call__(
        self, log: str, words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> Ended:
        assert seconds > 0
        self.asked.append(log)
        self.words[log] = words
        self.after.append(environment.get("TORCHDYNAMO_REPRO_AFTER"))
        ended = self.ends[log.replace("-", "_")]
        work = Path(environment["TORCH_COMPILE_DEBUG_DIR"])
        if log.startswith("provoke") and "writes" in ended.output:
            (work / "run_1" / "minifier").mkdir(parents=True)
            (work / "run_1" / "minifier" / LAUNCHER).write_text(GRAPH)
            (work / RESULT).write_text("the whole graph")
        if log.startswith("minify") and "writes" in ended.output:
            (folder / RESULT).write_text(GRAPH)
        return ended


def tried(processes: Processes, folder: Path, compiler: str = "mine", seconds: float = 100.0) -> Tried:
    return try_torch(job(), compiler, compiler, "", folder, seconds, processes)


WRONG = Ended(code=1, output="writes\nAccuracyError: Bad accuracy detected.")
MINIFIED = Ended(code=0, output="writes")


FAILS, PASSES = (Ended(code=0, output=f"verdict: {word}") for word in ("fails", "passes"))


@pytest.mark.parametrize(
    ("shown", "judged", "said"),
    [
        (WRONG, FAILS, "shows the fault by torch's rule; by our rule: fails"),
        (Ended(code=0), PASSES, "does not show the fault by torch's rule; by our rule: passes"),
        (
            Ended(code=1, output="NameError"),
            Ended(code=None),
            "does not run: NameError; by our rule: out of time",
        ),
        (Ended(code=None), Ended(code=1, output="no"), "was out of time; by our rule: it does not run (no)"),
    ],
)
def test_its_script_is_kept_and_two_verdicts_on_it(
    tmp_path: Path, shown: Ended, judged: Ended, said: str
) -> None:
    processes = Processes(provoke_dynamo=WRONG, minify_dynamo=MINIFIED, run=shown, judge=judged)
    found = tried(processes, tmp_path)
    assert found == Tried(said=f"found a graph; the script {said}", script="torch-minifier-mine.py")
    assert (tmp_path / found.script).read_text() == GRAPH
    assert processes.asked == ["provoke-dynamo", "minify-dynamo", "run", "judge"]
    assert processes.after == ["dynamo", None, None, None]  # only the first compares


def test_a_result_before_the_end_of_its_time_is_used(tmp_path: Path) -> None:
    ends = Processes(
        provoke_dynamo=WRONG,
        minify_dynamo=Ended(code=None, output="writes"),
        run=WRONG,
        judge=Ended(code=0, output="verdict: fails"),
    )
    assert tried(ends, tmp_path).said.startswith(
        "found a graph, out of time before the end; the script shows"
    )


@pytest.mark.parametrize(
    ("provoked", "minified", "said"),
    [
        (Ended(code=0, output="torch has no objection"), None, "found nothing"),
        (Ended(code=1, output="no room\nRuntimeError: no"), None, "failed: RuntimeError: no"),
        (
            Ended(code=0, output="ran into a runtime exception\nTypeError: no\nlast"),
            None,
            "failed: TypeError: no",
        ),
        (Ended(code=None), None, OUT_OF_TIME),
        (WRONG, Ended(code=None), OUT_OF_TIME),
        (WRONG, Ended(code=0), "found nothing"),
        (WRONG, Ended(code=1, output="it did not fail"), "found nothing: it did not fail"),
    ],
)
def test_without_a_result_it_says_why(
    tmp_path: Path, provoked: Ended, minified: Ended | None, said: str
) -> None:
    more = {} if minified is None else {"minify_dynamo": minified}
    assert tried(Processes(provoke_dynamo=provoked, **more), tmp_path) == Tried(said=said)
    assert not list(tmp_path.glob("*.py"))


def test_inductors_graphs_are_compared_after_aotautograd_first(tmp_path: Path) -> None:
    right = Ended(code=0)
    processes = Processes(provoke_aot=right, provoke_dynamo=right)
    assert tried(processes, tmp_path, "inductor").said == "found nothing"
    assert processes.after == ["aot", "dynamo"]


def test_without_time_nothing_is_started(tmp_path: Path) -> None:
    processes = Processes()
    assert tried(processes, tmp_path, seconds=3.0).said == OUT_OF_TIME
    assert processes.asked == []


def test_a_compiler_of_the_users_own_is_made_known_to_torchs_scripts(tmp_path: Path) -> None:
    processes = Processes(provoke_dynamo=WRONG, minify_dynamo=MINIFIED, run=WRONG, judge=Ended(code=0))
    found = try_torch(job(sources={"mine": "mine.py:wrong"}), "mine", "mine", "", tmp_path, 100.0, processes)
    text = (tmp_path / found.script).read_text()
    assert f"register_own('mine', 'mine.py:wrong', {str(Path.cwd())!r})" in text
    assert text.endswith(GRAPH)


COMPILER = '''
calls = 0

def every_third(graph, example_inputs):
    """Wrong in every third call: torch compares one."""
    def run(*given):
        global calls
        calls += 1
        return tuple(made * 1.5 if calls % 3 == 0 else made for made in graph(*given))
    return run
'''

MODEL = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 4)), torch.randn(16, 8)
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[], Job]:
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "compiler.py").write_text(COMPILER)
    return lambda: job(f"{tmp_path / 'net.py'}:make", {"mine": f"{tmp_path / 'compiler.py'}:every_third"})


def test_real_processes_of_a_fault_that_torch_does_not_find(tmp_path: Path, own: Callable[[], Job]) -> None:
    found = try_torch(own(), "mine", "mine", "", tmp_path, 300.0)
    assert found == Tried(said="found nothing")
    said = (tmp_path / "torch-minifier-mine" / "provoke-dynamo.log").read_text()
    assert "torch has no objection; by our rule: fails" in said
