"""One command for each thing that README, COMPARE, STUDIES and upstream's flags promise, and its answer.

Workers answer at once (``instant.py``) but for ``--why`` and ``--tune``. Other measurements of models stand
beside this file: the models, compilers and metrics of people (``test_own_*``, ``test_howto``), ``--envs``,
``--compile-runs``, ``--start-up``, ``--shapes`` (``test_compile_runs``), ``--localize``, Ray.
"""

import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from runner.store.record_file import read_records
from tests.cli.command import ROOT, TOYS, runner
from tests.cli.instant_runs import FLAGS, Server
from tests.command_line import ran

HERE = "-n6 --processes=1 -dcpu --output-dir={new}"
ONE = f"--suites=tests/suites/instant.py --only=one {HERE}"
OPEN = r"one training float32, inductor: inconclusive \(processes\), 1\.00x \[0\.95,\s+1\.05\], parity pass"
BOTH = "results/matrix-cpu results/matrix-cpu/again"

# {new}: an empty folder; {run}: a finished run. What is printed, after the exit code, where it is not 0
MEASURED = (
    ("--training --compilers=eager,inductor", r"A/A.*1\.000x \[0\.995, 1\.005\] same.*" + OPEN),
    ("--training --inference --dtypes=float32,bfloat16 --compilers=inductor", "one inference bfloat16"),
    ("--training --inductor --processes=2", r"inductor: \w+.* \[0\.97"),
    ("--training --inductor --optimizer=adamw --explain", "a step of adamw"),
    ("--training --inductor --parity=field", OPEN),
    ("--training '--compilers=inductor,inductor[epilogue_fusion=False]'", r"fusion=False\]:"),
    ("--inference --inductor --sweep 'batch=1:4:*2'", r"over batch 1 to 4: faster at 0.*3/3 pass"),
    ("--inference --inductor --sweep threads=1,2", r"over threads 1 to 2: .* 2/2 pass"),
    ("--training --inductor --fail-on=speedup:1.4", 1, r"speedup:1\.4: FAILED"),
    ("--training --inductor --fail-on=speedup:0.8 --confirm", r"speedup:0\.8: passed"),
    ("--training --inductor --format=csv,json,md", r"inductor 1\.0.* pass\nFiles: \S+/new\n$"),
    ("--training --inductor --total-partitions=2 --partition-id=1", "part 1 of 2: the plan has 1 job"),
    ("--inference --compilers=inductor --only=layer_norm --suites=ops", "layer_norm .*parity pass"),
    ("--generate --inductor --only=DistillGPT2 --suites=huggingface", "generate float32, inductor"),
)
FINISHED = (
    ("--visualize-logs={run}", OPEN),
    ("--visualize-logs={run} --format=md,csv,json,html", r"Report: \S+/report\.html"),
    (f"--compare {BOTH}", "inductor"),
    (f"--compare {BOTH} --format=md", r"\| *inductor"),
    (f"--compare {BOTH} --fail-on=parity,graph-breaks,recompiles", "graph-breaks"),
    (f"--compare {BOTH} --fail-on=regression:5%", 3, "regression:5 %: open"),
    ("--history={run}/..", r"inductor: 3 of 3 passed.*index\.html"),
    ("--visualize-logs={run} --format=jsonl,junit,bencher", r'^\{"run": "[^"]+", "final": true, "job": "'),
    ("--resume={run}", OPEN),
    ("--merge {run} {run}/../part --output-dir={new}", r"inference, float32, cpu +inductor .*3/3"),
    ("--list --suites=tiny_gpt --training", "GPT_150k .*batch 8 of 64"),
    ("--list --suites=huggingface,timm_models,ops --inference", "BertForMaskedLM.*lcnet_050.*layer_norm"),
    ("--list-compilers", r"inductor +yes.*torchscript +yes"),
    ("--print-run-commands --suites=tiny_gpt --training --inductor", "--only=MLP_addition --scale=small"),
    ("doctor", "Eager against itself"),
)
UPSTREAM = (
    ("--inference --inductor --accuracy --suites=huggingface --only BertForMaskedLM", "parity pass"),
    ("--performance --training --float32 --backend=inductor --suites=timm_models --only lcnet_050", "1.00x"),
    ("--inference --inductor --cold-start-latency", "inductor: inconclusive"),
    ("--inference --inductor --dynamic-shapes", "inductor: inconclusive"),
    ("--inference --inductor_compile_mode=reduce-overhead --inductor", "inductor_reduce_overhead: inc"),
    ("--inference --speedup-ts", "torchscript: inconclusive"),
    ("--inference --overhead", "dynamo_eager: inconclusive"),
    ("--inference --nothing", r"eager \(A/A\): same, 1\.00x"),
    ("--inference --inductor -f --ci --timing --verbose --output={new}.csv", "note: --ci"),
    ("--inference --quantization=int8dynamic", 2, "torchao is not installed"),
    ("--inference --inductor --part=3", 2, "--part is not supported: --model"),
)


@pytest.fixture(scope="module")
def finished(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    server.light = False
    parts = {"run": FLAGS, "part": ("--inference", *FLAGS[1:])}
    for name, words in parts.items():
        ended = server.run(*words, "--processes=1", "--format=console,csv", f"--output-dir={folder / name}")
        assert ended.code == 0, ended.printed
    return folder / "run"


def whole(command: str) -> str:
    """On a processor, briefly, of a suite of names unless it names one."""
    more = HERE if "--suites" in command else ONE
    return f"{command} {more.replace('--processes=1', '') if '--processes' in command else more}"


ROWS = [*((whole(command), *more) for command, *more in (*MEASURED, *UPSTREAM)), *FINISHED]
CODES = [(row[0], *(row[1:] if row[2:] else (0, row[1]))) for row in ROWS]


@pytest.mark.series
@pytest.mark.parametrize(("command", "code", "says"), CODES)
def test_a_promise(
    server: Server, finished: Path, tmp_path: Path, command: str, code: int, says: str
) -> None:
    ended = server.run(*shlex.split(command.format(new=tmp_path / "new", run=finished)))
    assert ended.code == code, ended.printed
    assert re.search(says, ended.printed, re.DOTALL), ended.printed


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--why --compilers=aot_eager", "What it is not"),
        ("--tune --compilers=inductor", "What to try.*Keep: "),
    ],
)
def test_why_and_tune(tmp_path: Path, words: str, says: str) -> None:
    more = (f"--suites={TOYS}", "--only=linear", "--inference", "-n6", "-dcpu", "--threads=1")
    done = runner(*words.split(), *more, f"--output-dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert re.search(says, done.stdout, re.DOTALL), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
def test_why_that_was_killed_goes_on(server: Server, tmp_path: Path, number: int) -> None:
    """Killed in the middle of writing the record of the look, and each of the pairs."""
    out = tmp_path / "run"
    words = shlex.split(f"--why --training --compilers=aot_eager {ONE.format(new=out)}")
    assert server.run(*words, tear=number).code == -signal.SIGKILL
    before = (out / "records.jsonl").read_bytes()
    ended = server.run("--resume", str(out))
    assert ended.code == 0, ended.printed
    assert (out / "records.jsonl").read_bytes().startswith(before)
    records = read_records(out / "records.jsonl").processes
    parts = sorted((record.experiment, record.candidate) for record in records)
    assert parts == [("", "aot_eager"), ("", "dynamo_eager"), ("look", "aot_eager")]
    for printed in (ended.printed, server.run("--visualize-logs", str(out)).printed):
        assert "What it is not" in printed
    assert {"why.html", "why.md", "why.json"} <= {path.name for path in out.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("suites/tiny_gpt.py --list --inference", "GPT_150k"),
        ("suites/huggingface.py --list --training --inductor", "BertForMaskedLM"),
        ("-m studies report {study}", "everything is in"),
        ("-m torchduet --list --suites=ops --inference", "layer_norm"),
    ],
)
def test_other_ways_to_begin(tmp_path: Path, command: str, says: str) -> None:
    shutil.copytree(ROOT / "results" / "study-a-cpu", tmp_path / "study")
    done = ran(sys.executable, *shlex.split(command.format(study=tmp_path / "study")), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout, done.stdout
