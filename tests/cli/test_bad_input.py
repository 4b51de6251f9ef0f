"""Bad input through the real program: one sentence, exit code 2, no traceback, nothing written.

What the words alone tell: ``tests/unit/test_config.py``.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, refusal, runner
from tests.command_line import ran

SENTENCES = [
    (["--training", "-k", "shakespere"], "-k/--filter"),
    pytest.param(
        ["--training", "--optimizer=torch.optim:AdamV"],
        "--optimizer: torch.optim has no function 'AdamV'; did you mean Adam or",
        marks=pytest.mark.slow,
    ),
    (["--training", "--only=MLP_addition", "--shapes=sequence=8"], "--shapes: MLP_addition of tiny_gpt has"),
    pytest.param(
        ["--training", "-dcpu", "--compilers=cudagraphs"],
        "--compilers: cudagraphs cannot be used here",
        marks=pytest.mark.slow,
    ),
    (["--training", "--complers=eager"], "--complers: there is no such flag; did you mean --compilers"),
    (["--training", "--threads=9999"], "--threads: 9999 is more than the"),
    (["--training", "--output-dir", "runner.py"], "--output-dir: runner.py is a file"),
    (["--visualize-logs", "docs"], "--visualize-logs: there is no records.jsonl"),
    (["--resume", "docs"], "--resume"),
    (["--inference", "--envs=old=/no/such/python"], "--envs: old: there is no /no/such/python; give"),
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
