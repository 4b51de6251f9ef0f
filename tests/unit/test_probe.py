"""Questions for a worker's interpreter that does not answer, and for files of the user that misbehave."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.loading.suite_files import ROOT
from harness.schema import Case, Mode, Setting
from runner.errors import UsageError
from runner.plan import probe
from tests.cli.command import wait_until
from tests.command_line import executable, refused
from tests.factories import Capture, Patch, sampled
from tests.unit.test_worker_process import alive

SETTING = Setting(mode=Mode.INFERENCE, device_type="cpu", scale="tiny")
SUITE = """
from harness.schema import Case
def cases(setting):
    right = dict(suite=__file__, name="x", mode=setting.mode, batch_size=1, published_batch_size=1)
    return [Case(**{{**right, **{changes}}})]
"""
HARMLESS = (
    *("import os; os.chdir('/')", "import os; os.close(1); os.close(2)"),
    "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
    *("print('[' * 100_000)", "import atexit, time; atexit.register(time.sleep, 600)"),
)
REFUSED = {
    "import os; os._exit(0)": r"it ended Python \(exit 0\)",
    "import os; os.write(2, b'bye'); os._exit(5)": r"it ended Python \(exit 5, after 'bye'\)",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": r"it ended Python \(SIGSEGV\)",
    "import builtins; builtins.len = None": "TypeError: 'NoneType' object is not callable",
    "import sys; sys.excepthook = None; 1 / 0": "ZeroDivisionError",
    "while True: pass": "it did not answer in 1.5 s",
}
BAD_CASES = {
    "{'suite': 'tiny_gpt'}": "the suite of the case 'x' is 'tiny_gpt'; write suite=__file__",
    "{'name': ' '}": "the name of a case is ' '; give it a name",
    "{'batch_size': -1}": "the batch size of the case 'x' is -1; give 1 or more",
    "{'name': '\\ud800'}": "a text of the case '\\ud800' is not valid Unicode",
    "{'name': None}": "of the case None, name: None is not a text",
    "{'mode': 'generate'}": "mode of the case 'x' is generate, not inference",
    "{'scale': 'huge'}": "scale of the case 'x' is huge, not full or small or",
}
BROKEN = {
    "import nothing_like_that\n": "ModuleNotFoundError: No module named 'nothing_like_that'",
    "def cases(*a): return ['one', 'two']\n": "TypeError: cases() gave a str where a harness.schema.Case",
    "import sys; sys.exit(0)\n": "SystemExit: sys.exit(0) was called",
    "class E(Exception):\n    def __str__(self): raise self\nraise E\n": "listed: E: (str() of this exc",
    "raise ValueError('two\\nlines ' + 'x' * 5000)\n": "ValueError: two\\nlines xxx",
    SUITE.format(changes="{}") + "once = cases\ndef cases(*a): return once(*a) * 2\n": "gave 'x' more",
}


def listed(folder: Path, before: str = "", changes: str = "{}", limit_s: float = 60.0) -> tuple[Case, ...]:
    suite = folder / "mine.py"
    suite.write_text(before + SUITE.format(changes=changes))
    return probe.listed_cases(str(suite), SETTING, limit_s=limit_s)


def interpreter(folder: Path, answer: str) -> str:
    return str(executable(folder / "python", f"#!/bin/sh\n{answer}\n"))


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@pytest.mark.parametrize("before", sampled(3, HARMLESS))
def test_what_a_suite_file_does_when_it_is_imported_stays_in_its_process(tmp_path: Path, before: str) -> None:
    here = Path.cwd()
    assert ([case.name for case in listed(tmp_path, before)], Path.cwd()) == (["x"], here)


@pytest.mark.parametrize("before", sampled(3, REFUSED))
def test_a_suite_file_that_gives_no_cases_is_refused_by_its_name(tmp_path: Path, before: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^--suites: {tmp_path}/mine.py cannot be listed: {REFUSED[before]}"
    ):
        listed(tmp_path, before, limit_s=1.5 if "while" in before else 60.0)


@pytest.mark.parametrize("text", sampled(3, BROKEN), ids=lambda text: BROKEN[text][:40])
def test_what_is_no_suite_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    suite = tmp_path / "broken.py"
    suite.write_text(text)
    with refused(BROKEN[text]) as raised:
        probe.listed_cases(str(suite), SETTING)
    assert "a suite needs cases(setting) and build(case)" in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("changes", sampled(3, BAD_CASES))
def test_a_case_that_no_worker_could_measure_is_refused(tmp_path: Path, changes: str) -> None:
    with refused(BAD_CASES[changes]):
        listed(tmp_path, changes=changes)


def test_a_process_that_a_suite_file_starts_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    daemon = (
        "import subprocess; daemon = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"print(daemon.pid, file=open({str(pid)!r}, 'w'), flush=True)"
    )
    assert listed(tmp_path, daemon)
    started = pid_in(pid)
    wait_until(lambda: not alive(started))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_runner_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    pid, suite = tmp_path / "pid", tmp_path / "mine.py"
    endless = f"import os\nprint(os.getpid(), file=open({str(pid)!r}, 'w'), flush=True)\nwhile True: pass\n"
    suite.write_text(endless)
    command = [sys.executable, "runner.py", f"--suites={suite}", "--list"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as runner:
        spinning = pid_in(pid)
        runner.send_signal(how)
    wait_until(lambda: not alive(spinning))


def test_a_slow_interpreter_is_not_called_one_without_torch(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(probe, "GOODBYE_S", 0.1)
    python = interpreter(tmp_path, "exec sleep 60")
    with pytest.raises(probe.NoAnswer, match=r"it did not answer in 0\.2 s"):
        probe._ask("harness.probes.compilers", ["cpu"], python, limit_s=0.2)


def test_an_interpreter_without_torch_is_and_a_compiler_that_ends_it_is_not(tmp_path: Path) -> None:
    missing = '{"raised": "ModuleNotFoundError", "missing": "torch"}'
    python = interpreter(tmp_path, f"echo '{missing}'; exit 1")
    with pytest.raises(UsageError, match="--compilers: torch cannot be imported here; install it"):
        probe.usable_compilers("cpu", python=python)
    python = interpreter(tmp_path, "echo '{\"ended\": 5}'")
    with pytest.raises(UsageError, match=r"--compilers: c.py:f cannot be loaded: it ended Python \(exit 5\)"):
        probe.usable_compilers("cpu", ["f"], python=python, own={"f": "c.py:f"})


def test_an_answer_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "head -c 100000 /dev/zero | tr '\\0' '['")
    with pytest.raises(probe.NoAnswer, match="its answer cannot be read"):
        probe._ask("harness.probes.devices", ["cpu"], python)


def test_a_model_that_builds_long_is_not_refused(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    python = interpreter(tmp_path, f"echo '{{\"ended\": {-signal.SIGALRM}}}'")
    assert probe.what_is_wrong([], [], {}, python) is None
    assert "note: building the model takes longer than 20 s" in capsys.readouterr().err


def test_another_interpreter_is_asked_without_our_variables(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    python = interpreter(tmp_path, 'printf \'{"answer": "%s"}\\n\' "$PYTHONHOME"')
    assert probe._ask("a.module", [], python) == ""
