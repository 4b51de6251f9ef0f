"""Bad input through the real program: one sentence, exit code 2, no traceback, nothing written."""

import os
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, refusal, runner
from tests.command_line import ran

SENTENCES = [
    (["--training", "-k", "shakespere"], "-k/--filter"),
    (["--training", "--generate"], "--generate: tiny_gpt has no model for it"),
    (
        ["--training", "--scale=huge"],
        "--scale: there is no scale called 'huge'; choose from full, small, tiny",
    ),
    (["--training", "--model", "mine"], "--model: 'mine' is not written as package.module:function"),
    (["--training", "--model", "no/such.py:make"], "--model: there is no file 'no/such.py'"),
    (["--training", "--pretrained", "--scale=tiny"], "--pretrained: published weights need --scale=full"),
    (["--training", "--batch-size=2", "--batch-size-file=x"], "exclude each other"),
    (["--training", "--batch-size-file=no_such"], "--batch-size-file: no_such cannot be read"),
    pytest.param(
        ["--training", "--backend=inducter"],
        "--backend: there is no compiler called 'inducter'",
        marks=pytest.mark.slow,
    ),
    (
        ["--training", "--inductor-compile-mode=fast"],
        "--inductor-compile-mode: there is no mode called 'fast'",
    ),
    (["--training", "--freezing"], "--freezing makes the weights constants"),
    (["--inference", "--optimizer=adamw"], "--optimizer ends a training step; leave it out, or add"),
    (["--training", "--optimizer=adamw", "--dtypes=float16"], "--optimizer: in float16, small gradients"),
    (["--training", "--clip-grad-norm=1"], "--clip-grad-norm comes before an optimizer's step; leave it out"),
    (["--inference", "--activation-checkpointing"], "--activation-checkpointing is for training; leave it"),
    (["--training", "--scheduler=float"], "--scheduler changes an optimizer's learning rate; leave it out"),
    (["--inference", "--gradient-accumulation=2"], "--gradient-accumulation is for training; leave it out"),
    (["--inference", "--zero-grad=zero"], "--zero-grad is for training; leave it out, or add"),
    (["--training", "--zero-grad=never"], "--zero-grad: there is no way to clear gradients called 'never'"),
    (["--training", "--clip-grad-norm=0"], "--clip-grad-norm: '0' is not a norm above 0, such as 1.0"),
    (["--inference", "--whole-step"], "--whole-step compiles a training step; leave it out, or add"),
    (["--training", "--optimizer=lion"], "--optimizer: there is no optimizer called 'lion'"),
    (["--training", "--optimizer=nowhere.py:make"], "--optimizer: there is no file 'nowhere.py'"),
    pytest.param(
        ["--training", "--optimizer=torch.optim:AdamV"],
        "--optimizer: torch.optim has no function 'AdamV'; did you mean Adam or",
        marks=pytest.mark.slow,
    ),
    (
        ["--training", "--optimizer=sgd", "--scheduler=cosine"],
        "--scheduler: there is no scheduler called",
    ),
    (["--training", "--ddp=1"], "--ddp: 1 is too small; give a whole number from 2 up"),
    (
        ["--training", "--inference", "--ddp=2"],
        "--ddp measures a plain training step, compiled with a",
    ),
    (
        ["--training", "--ddp=2", "-dcuda:1"],
        "--ddp takes the first devices of a kind; write --devices=cpu, or",
    ),
    (
        ["--training", "--ddp=2", "--start-up=1"],
        "--ddp measures a plain training step, compiled with a graph",
    ),
    (["--training", "--ddp=2", "--nopython"], "--ddp measures a plain training step, compiled with a graph"),
    (["--training", "--ddp=2", "--inductor", "--compilers=torchscript"], "--compilers: torchscript cannot"),
    (["--training", "--gradient-accumulation=0"], "--gradient-accumulation: 0 is too small"),
    (["--training", "--sweep=batch=1,2", "--batch-size=4"], "--sweep sets the batch size; leave --batch"),
    (["--training", "--sweep=threads=1", "--threads=1"], "--sweep sets the threads; leave -t/--threads out"),
    (["--generate", "--sweep=sequence=8", "--prompt-tokens=8"], "--sweep sets the prompt; leave --prompt"),
    (["--training", "--sweep=batch=1", "--sweep=batch=2"], "--sweep: name an axis once, with all its values"),
    (["--training", "--only=MLP_addition", "--sweep=sequence=8"], "--sweep: MLP_addition of tiny_gpt has no"),
    (["--training", "--only=MLP_addition", "--shapes=sequence=8"], "--shapes: MLP_addition of tiny_gpt has"),
    (["--training", "--baseline-dtype=fp64"], "--baseline-dtype: there is no precision called 'fp64'"),
    pytest.param(
        ["--training", "-dcpu", "--compilers=cudagraphs"],
        "--compilers: cudagraphs cannot be used here",
        marks=pytest.mark.slow,
    ),
    (["--training", "--complers=eager"], "--complers: there is no such flag; did you mean --compilers"),
    (["--training", "--zzzzzz=3"], "--zzzzzz: there is no such flag; see --help for the flags"),
    (["--training", "--threads=9999"], "--threads: 9999 is more than the"),
    pytest.param(
        ["--training", "--devices=cuda:63"], "--devices: cuda:63 is not there (torch ", marks=pytest.mark.slow
    ),
    (
        ["--training", "--dropout=keep"],
        "--dropout=keep is for models of your own; in the models of tiny_gpt, dropout",
    ),
    (
        ["--training", "--performance", "--localize"],
        "--localize needs the parity check; leave --performance out",
    ),
    (["--training", "--output-dir", "runner.py"], "--output-dir: runner.py is a file"),
    (["--training", "--output-dir", "/proc/nowhere"], "cannot be written"),
    (["--visualize-logs", "no/such/folder"], "--visualize-logs: there is no folder"),
    (["--visualize-logs", "docs"], "--visualize-logs: there is no records.jsonl"),
    (["--resume", "docs"], "--resume"),
    (["--inference", "--envs=old=/no/such/python"], "--envs: old: there is no /no/such/python; give"),
    (["--inference", "--envs=a=/bin/true", "--executor=ray"], "--envs uses interpreters of this machine"),
]


@pytest.mark.parametrize(
    ("words", "says"), SENTENCES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_one_sentence_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    writes = any(word.startswith(("--output-dir", "--visualize", "--resume")) for word in words)
    assert says in refusal(*words, *([] if writes else [f"--output-dir={tmp_path / 'run'}"]))
    assert not list(tmp_path.iterdir())


CASE = """
from harness.schema import Case
def cases(setting):
    right = dict(suite=__file__, name="x", mode=setting.mode, batch_size=1, published_batch_size=1)
    return [Case(**right, tags=['quick'])]
"""


def test_a_suite_file_that_cannot_be_listed(tmp_path: Path) -> None:
    """What else a file may hold: ``tests/unit/test_probe.py``."""
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\n")
    for words in (["--list"], ["--training", f"--output-dir={tmp_path / 'run'}"]):
        assert "a suite needs cases(setting) and build(case)" in refusal(f"--suites={broken}", *words)
    assert not (tmp_path / "run").exists()


def test_a_suite_that_looks_names_up_and_fails_at_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    for text, says in (
        ("def find(pattern): raise SystemExit(0)\n", "find('resnet') of"),
        ("def find(pattern): return ['resnet']\n", "has no attribute 'case_for'"),
        ("def find(pattern): return ['resnet']\ndef case_for(*a): return 3\n", "gave a int where"),
    ):
        broken.write_text(f"def cases(setting): return ()\n{text}")
        words = (f"--suites={broken}", "--training", "--only=resnet", f"--output-dir={tmp_path / 'run'}")
        assert says in refusal(*words)


def test_lists_in_a_case_are_as_good_as_tuples_and_a_file_named_twice_is_one_suite(tmp_path: Path) -> None:
    suite = tmp_path / "mine.py"
    suite.write_text(CASE)
    done = runner(f"--suites={suite}", "--list", f"--suites={tmp_path}/../{tmp_path.name}/mine.py")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1


def test_a_missing_package_ends_in_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    """As when the environment was not activated."""
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')\n")
    folder = tmp_path / "never"
    words = ("--suites=tiny_gpt", "--training", "--quick", "--devices=cpu", f"--output-dir={folder}")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ran(sys.executable, ROOT / "runner.py", *words, timeout=300, env=variables)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: the package rich is not installed for ")
    assert "make install" in line
    assert not folder.exists()
