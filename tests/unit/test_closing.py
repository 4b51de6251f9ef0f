"""The end of a run on a console of 80 columns: the answer, then the path of report.html.

``UPDATE_GOLDEN=1 pytest tests/unit/test_closing.py`` writes the golden files anew; read the difference.
"""

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from harness.schema import Mode, Protocol, Record, Setting, Status
from runner.analysis.derive import summarize
from runner.cli.measuring import report
from runner.reports.closing import closing_lines
from runner.store.run_folder import RunFolder
from suites import tiny_gpt
from tests.factories import control, make_job, make_record

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "endings"
LAST = 25  # lines
UNCHECKED = Protocol(accuracy=False)


def one_model() -> list[Record]:
    job = make_job("transformer_loss", suite="models.py", dtype="bfloat16", candidates=("inductor",))
    return [make_record(job, speedup=1.1, jitter=0.4, compilation_s=104.0)]


def main_job() -> list[Record]:
    """13 models, three compilers: two models in which one goes wrong."""
    cases = tiny_gpt.cases(Setting(mode=Mode.TRAINING, device_type="cpu", scale="small"))[:13]
    records = []
    for place, case in enumerate(cases):
        job = replace(
            make_job(dtype="bfloat16", candidates=("aot_eager", "inductor", "torchscript")), case=case
        )
        failed = {3: Status.FAIL_ACCURACY, 7: Status.CRASH}.get(place, Status.PASS)
        records += [
            make_record(job, "aot_eager", speedup=0.9 + place / 100, compilation_s=2.0),
            make_record(job, speedup=0.8 + place / 10, jitter=0.03, status=failed, compilation_s=30.0),
            make_record(job, "torchscript", speedup=1.0, jitter=0.1, compilation_s=0.5),
        ]
    return records


def own_models() -> list[Record]:
    """18 functions of one file, each a model."""
    names = ("mlp", "cnn", "lstm", "gpt", "vit", "moe", "unet", "gan", "vae")
    jobs = [
        make_job(f"{name}_{n}", suite="models.py", candidates=("inductor",)) for name in names for n in (1, 2)
    ]
    records = [make_record(job, speedup=0.9 + place / 20, jitter=0.02) for place, job in enumerate(jobs)]
    records[4] = make_record(jobs[4], status=Status.NOT_COMPILED)
    records[5] = make_record(jobs[5], speedup=0.5, metrics={"graph_breaks": 4})
    return records


RUNS: dict[str, Callable[[], list[Record]]] = {
    "one_model": one_model,
    "main_job": main_job,
    "own_models": own_models,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_with_its_answer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records = RUNS[name]()
    jobs = list({record.job.key: record.job for record in records}.values())
    folder = RunFolder.create(Path("logs/mine"), jobs, ["runner.py"], {})
    for record in records:
        folder.append(record)
    file = io.StringIO()
    report(folder, Console(file=file, width=80), frozenset({"html", "console"}))
    text = file.getvalue().replace(f"{tmp_path.resolve()}/", "")
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[-1] == "Report: logs/mine/report.html"
    ending = "\n".join(lines[-LAST:]) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(ending, encoding="utf-8")
    assert ending == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            make_record(make_job(), speedup=2.0, compilation_s=3.0),
            "faster, 2.00x [1.98, 2.03], compiles in 3.00 s, parity pass, pays after 630 steps",
        ),
        (
            make_record(make_job(), status=Status.FAIL_ACCURACY, speedup=3.0),
            "fail_accuracy (2 of 10 tensors differ too much), so 3.00x [2.96, 3.04] does not count",
        ),
        (make_record(make_job(), status=Status.CRASH), "crash (SIGSEGV: made up | for crash)"),
        (
            make_record(make_job(protocol=UNCHECKED), speedup=0.5, status=Status.PASS_DUE_TO_SKIP),
            "slower, 0.500x [0.494, 0.507], compiles in 5.00 s, parity not checked, never pays",
        ),
        (make_record(make_job(protocol=Protocol(performance=False))), "compiles in 5.00 s, parity pass"),
    ],
)
def test_the_line_of_a_result(record: Record, line: str) -> None:
    assert closing_lines(summarize([control(record.job), record])) == (
        f"model training float32, inductor: {line}",
    )
