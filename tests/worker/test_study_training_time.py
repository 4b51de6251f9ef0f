"""Study A as a person runs it, with sizes that a test can afford."""

import json
from pathlib import Path

import pytest

from studies.cli import main
from studies.journal import of_kind, read_lines


def run(folder: Path, *flags: str) -> int:
    return main(["training-time", "--quick", "--device=cpu", f"--output-dir={folder}", *flags])


def test_eager_and_script_train_alike_and_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run(folder, "--modes=eager,script", "--precisions=float32", "--steps=10", "--seeds=2") == 0
    told = capsys.readouterr().out
    assert "Step     0: loss=4." in told
    assert "NOT Shakespeare" in told
    assert "TorchSharp 0.100.7 (published, not measured here)" in told
    lines = read_lines(folder)
    assert lines[0]["parameters"] == 149_544
    assert lines[0]["attention_kernels"] == ["flash", "memory-efficient"]  # torch's default
    assert [line["status"] for line in of_kind(lines, "outcome")] == ["PASS"] * 4
    chunks = of_kind(lines, "chunk")
    for seed in (0, 1):
        eager, script = (
            [
                loss
                for c in chunks
                if c["variant"] == f"float32 {m}" and c["seed"] == seed
                for loss in c["losses"]
            ]
            for m in ("eager", "script")
        )
        assert len(eager) == 10
        assert script == pytest.approx(eager, rel=1e-4)
        assert eager[-1] < eager[0] - 0.1
    names = {path.name for path in folder.iterdir()}
    assert names >= {"report.md", "loss_curves.png", "loss_curves.svg", "records.jsonl"}


def test_a_report_is_derived_again_from_what_a_killed_run_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run(folder, "--modes=eager", "--precisions=float32", "--steps=6", "--seeds=1")
    records = folder / "records.jsonl"
    whole = records.read_bytes().splitlines(keepends=True)
    assert json.loads(whole[-1])["kind"] == "outcome"
    records.write_bytes(b"".join(whole[:-2]) + whole[-2][:40])  # torn in the middle of a line
    capsys.readouterr()
    assert main(["report", str(folder)]) == 1
    assert "CUT_SHORT" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own, where Dynamo looks
def test_every_variant_trains(tmp_path: Path) -> None:
    assert run(tmp_path / "run") == 0
    outcomes = of_kind(read_lines(tmp_path / "run"), "outcome")
    assert len(outcomes) == 2 * 2 * 4
    assert {line["status"] for line in outcomes} == {"PASS"}
