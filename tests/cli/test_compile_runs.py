"""``--compile-runs``, a whole run: cold and warm compilations, each in a process of its own."""

from pathlib import Path

import pytest

from tests.cli.command import records, runner

MODEL = """
import torch

def make():
    return torch.nn.Linear(8, 4), torch.randn(4, 8)

def fine(graph, example_inputs):
    import os, pathlib
    caches = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "fine") if "TORCHINDUCTOR_CACHE_DIR" in os.environ else None
    print("process", os.getpid(), "warm" if caches and caches.exists() else "cold")
    if caches:
        caches.mkdir(parents=True, exist_ok=True)
    return graph.forward

def broken(graph, example_inputs):
    raise ValueError("no")
"""  # noqa: E501
WORDS = (
    *("--model=mine.py:make", "--inference", "-n6", "-dcpu", "--format=console,md"),
    "--compilers=mine.py:fine,mine.py:broken",
)


@pytest.mark.slow
def test_each_compilation_has_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    folder = tmp_path / "run"
    gates = "--fail-on=recompiles,memory:1%"
    done = runner(*WORDS, "--compile-runs=2", gates, f"--output-dir={folder}", cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # one candidate fails
    assert "--fail-on recompiles: passed (results with recompilations: 0)" in done.stdout
    assert "--fail-on memory:1 %: " in done.stdout
    by_name = {record["candidate"]: record for record in records(folder)}
    fine, broken = by_name["mine.fine"], by_name["mine.broken"]
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
    assert [state for _, _, state in said][:4] == ["cold", "warm"] * 2
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Compilations in fresh processes: geometric means" in report
    assert [p for p in folder.rglob("caches-*") if p.is_dir()] == []


def test_nothing_else_may_compile_beside_it(tmp_path: Path) -> None:
    done = runner("--inference", "--compile-runs=2", "--prepare-ahead=2", f"--output-dir={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "--compile-runs times every compilation alone; leave --prepare-ahead out" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_gate_of_two_runs_and_a_bad_file_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for flags, sentence in (
        (["--fail-on=regression"], "--fail-on: regression needs two runs (--compare)"),
        (["--fail-on=recompiles", "--accept=nowhere.toml"], "--accept: nowhere.toml cannot be read"),
        (["--accept=nowhere.toml"], "--accept does nothing here"),
    ):
        done = runner("--inference", *flags, f"--output-dir={tmp_path / 'run'}")
        assert done.returncode == 2
        assert sentence in done.stderr
        assert not (tmp_path / "run").exists()
