"""``--compile-runs``, ``--start-up``, ``--shapes``, ``--sweep``: whole runs, each in many processes."""

from pathlib import Path

import pytest

from tests.cli.command import records, run_into, runner

MODEL = """
import torch

class Wrong(torch.nn.Linear):
    def forward(self, given):
        values = super().forward(given)
        if torch.compiler.is_compiling() and given.shape[0] == 6:
            return values * 1.5
        return values

def make(batch_size=4):
    return torch.nn.Linear(8, 4), torch.randn(batch_size, 8)

def wrong(batch_size=8):
    return Wrong(8, 4), torch.randn(batch_size, 8)

def fine(graph, example_inputs):
    return graph.forward

def stores(graph, example_inputs):
    import os, pathlib
    caches = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "fine") if "TORCHINDUCTOR_CACHE_DIR" in os.environ else None
    print("process", os.getpid(), "warm" if caches and caches.exists() else "cold")
    if caches:
        caches.mkdir(parents=True, exist_ok=True)
    return graph.forward

def broken(graph, example_inputs):
    raise ValueError("no")
"""  # noqa: E501
pytestmark = pytest.mark.slow
BRIEFLY = ("--inference", "-n6", "--processes=1", "-dcpu")
WORDS = ("--model=mine.py:make", *BRIEFLY, "--compilers=mine.py:fine")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    return tmp_path


def report_of(folder: Path) -> str:
    """The report of a run that has left no cache behind."""
    assert [p for p in folder.rglob("caches-*") if p.is_dir()] == []
    return (folder / "report.md").read_text(encoding="utf-8")


def test_each_compilation_has_a_process_of_its_own(here: Path) -> None:
    folder = here / "run"
    words = ("--model=mine.py:make", *BRIEFLY, "--compilers=mine.py:stores,mine.py:broken")
    more = ("--compile-runs=2", "--format=console,md", "--fail-on=recompiles,memory:1%")
    done = run_into(folder, *words, *more, cwd=here, code=1)  # one candidate fails
    assert "--fail-on recompiles: passed (results with recompilations: 0)" in done.stdout
    assert "--fail-on memory:1 %: " in done.stdout
    by_name = {record["candidate"]: record for record in records(folder)}
    fine, broken = by_name["mine.stores"], by_name["mine.broken"]
    runs = [(c["round"], c["start"], c["status"]) for c in fine["compilations"]]
    assert runs == [(n, start, "pass_due_to_skip") for n in (0, 1) for start in ("cold", "warm")]
    numbers = [c["metrics"] for c in fine["compilations"]]
    assert all(n["compilation_latency_s"] > 0 and n["compile_cpu_s"] > 0 for n in numbers)
    assert all(n["compile_peak_host_bytes"] > 50e6 for n in numbers)
    assert fine["samples"] is not None
    (failed,) = broken["compilations"]
    assert "no" in failed["failure"]
    log = "".join(path.read_text() for path in folder.glob("cases/*/output.log"))
    said = [line.split() for line in log.splitlines() if line.startswith("process")]
    assert len({pid for _, pid, _ in said}) == 5  # four that only compile, one that is timed
    assert [state for _, _, state in said][1:] == ["cold", "warm"] * 2
    assert "Compilations in fresh processes: geometric means" in report_of(folder)


def test_a_race_of_a_compiler_that_stores_nothing(here: Path) -> None:
    folder = here / "run"
    run_into(folder, *WORDS, "--start-up=1", cwd=here)
    (record,) = records(folder)
    races = record["compilations"]
    assert [race["start"] for race in races] == ["eager", "cold", "warm"]
    assert all(len(race["first_calls_s"]) == 100 for race in races)
    assert [race["status"] for race in races] == ["pass_due_to_skip", "pass_due_to_skip", "pass"]
    assert "compilation_latency_s" not in races[1]["metrics"]
    assert record["job"]["protocol"]["start"] == ""
    assert "mine.fine, cold" in report_of(folder)
    assert [path.suffix for path in sorted(folder.glob("*_start_up.*"))] == [".png", ".svg"]


def test_a_stream_of_sizes_and_a_size_that_computes_something_else(here: Path) -> None:
    folder = here / "run"
    words = ("--model=mine.py:wrong", *BRIEFLY, "-t1", "--compilers=aot_eager", "--format=json,md")
    run_into(folder, *words, "--shapes=batch=4,6,8", cwd=here, code=1)
    (record,) = records(folder)
    streams = {c["start"]: c for c in record["compilations"]}
    assert list(streams) == ["eager", "sizes"]
    assert all(len(c["first_calls_s"]) == 30 for c in streams.values())
    assert streams["sizes"]["metrics"]["recompiles"] == 2
    assert record["job"]["protocol"]["start"] == ""
    assert (record["status"], record["failure"]["kind"]) == ("fail_accuracy", "AnotherSize")
    assert record["failure"]["message"].startswith("of --shapes, batch=6: output: off by 50 %")
    report = report_of(folder)
    assert "Changing shapes (batch=4,6,8): 30 calls in fresh processes" in report
    assert "aot_eager: of --shapes, batch=6: output: off by 50 %" in report.replace("\\", "")
    assert "shapes are fixed" not in report


def test_a_curve_over_the_batch_and_the_threads(here: Path) -> None:
    folder = here / "run"
    run_into(folder, *WORDS, "--sweep=batch=2,16", "--sweep=threads=1", cwd=here)
    run_records = records(folder)
    points = [record["job"]["case"]["point"] for record in run_records]
    assert points == [["batch=2", "threads=1"], ["batch=16", "threads=1"]]
    assert [record["model"]["batch_size"] for record in run_records] == [2, 16]
    assert {record["environment"]["threads"] for record in run_records} == {1}
    assert [path.suffix for path in sorted(folder.glob("*_curves.*"))] == [".png", ".svg"]
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "records.jsonl").write_text(lines[0], encoding="utf-8")
    done = runner(f"--resume={folder}", cwd=here)
    assert done.returncode == 0, done.stderr
    assert [record["model"]["batch_size"] for record in records(folder)] == [2, 16]
    assert "mine.fine over batch 2 to 16: " in done.stdout
