"""Reasons that a run gives: recompilations, kernels, the end of measuring. Through the command line."""

import re
from pathlib import Path

import pytest

from tests.cli.command import TOYS, records, runner
from tests.cli.instant_runs import SUITE, Server


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compilers of Dynamo in one process, with their graph breaks, recompilations and a trace."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    done = runner(
        *("--training", f"--suites={TOYS}", "--only=norm", "--compilers=dynamo_eager,aot_eager", "-n6"),
        *("--explain", "--export-profiler-trace", "--threads=1", "--format=csv,md"),
        f"--output-dir={folder}",
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_what_the_shared_process_compiled_again_is_not_said_of_the_model(explained: Path) -> None:
    for record in records(explained):
        assert record["metrics"]["recompiles"] == 0
        assert record["metrics"]["recompile_reasons"] is None
    assert "BACKEND_MATCH" not in (explained / "report.md").read_text()


@pytest.mark.slow
def test_a_trace_lists_operators_and_no_ranges(explained: Path) -> None:
    (compiled,) = [r for r in records(explained) if r["candidate"] == "aot_eager"]
    text = compiled["metrics"]["candidate_kernel_changes"]
    assert "aten::" in text
    assert not re.search(r"CompiledFunction|Cache Lookup|autograd::engine", text)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (["-n6"], "fixed count"),
        (["--protocol=min_rounds=6", "--protocol=max_rounds=6", "--ci-width=0.01%"], "most rounds"),
        (["--protocol=min_rounds=6", "--protocol=max_measure_s=0.000001", "--ci-width=0.01%"], "out of time"),
        (["--protocol=min_rounds=6"], "precise"),
    ],
)
@pytest.mark.series
def test_a_record_says_why_measuring_ended(
    server: Server, limits: list[str], reason: str, tmp_path: Path
) -> None:
    """The workers pretend: their times, and so the end, do not depend on the machine."""
    folder = tmp_path / "run"
    words = ("--inference", f"--suites={SUITE}", "--only=one", "--compilers=eager", "--devices=cpu")
    ended = server.run(*words, *limits, f"--output-dir={folder}")
    assert ended.code == 0, ended.printed
    (record,) = records(folder)
    assert record["rounds_ended"] == reason
    if reason != "fixed count":
        assert "Measuring ended by --repeat" not in ended.printed
