"""Torch's own minifier, tried after the search of ``harness.worker.localize.search`` and not trusted.

Torch minifies what fails by its own rule (a tolerance of 1e-3, on the outputs of one graph). Several
processes do it, each with what is left of the time, in a folder of their own:

1. ``provoke`` compiles the submodule and runs the check with ``TORCHDYNAMO_REPRO_AFTER`` and
   ``TORCHDYNAMO_REPRO_LEVEL=4``: torch compares each graph and writes a script for the first that is wrong.
   Graphs of inductor are compared after AOTAutograd; if none is wrong, and for other compilers, after Dynamo:
   there the forward alone.
2. That script minifies the graph. Its result, a script again, is kept as ``torch-minifier-<candidate>.py``.
3. A fresh interpreter runs this script: does it show the fault by torch's rule?
4. ``judge`` compiles its graph with the candidate and judges it by our rule.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.backends.shared.presets import PRESETS
from harness.codec import to_json
from harness.schema import Job
from harness.worker.localize.script import file_name

PACKAGE = __name__.rpartition(".")[0]  # inside another package in the wheel
ROOT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]
LIMIT_S = 300.0  # of all processes
LEAST_S = 10.0  # less is not enough to import torch
FOR_MINIFYING = 0.7  # share of the time that is left: the rest is for steps 3 and 4
OUT_OF_TIME = "out of time"
NOTHING = "found nothing"
NOT_COMPARED = "ran into a runtime exception"  # of torch's log: it then takes the graph for right
LAUNCHER, RESULT = "minifier_launcher.py", "repro.py"  # torch's names


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended. ``code`` is None if its time was over."""

    code: int | None
    output: str = ""

    @property
    def error(self) -> str:
        """The last line that names an exception."""
        found = re.findall(r"\b\w*(?:Error|Exception): .*", self.output)
        return found[-1][:300] if found else self.last_line

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"exit code {self.code}"


Run = Callable[[str, Sequence[str], Path, Mapping[str, str], float], Ended]
"""Runs a command: a name for its log, the words, the current folder, the environment, and the seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What torch's minifier found, in words, and the script that it made (in the folder of the job)."""

    said: str
    script: str = ""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One attempt: the folder of its files, and how its processes run."""

    job: Job
    compiler: str
    module: str  # the submodule; "" is the whole model
    folder: Path
    deadline: float
    run: Run
    here: Path = field(default_factory=Path.cwd)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def found(self, after: str) -> Tried:
        """Provokes the fault ``after`` "aot" or "dynamo", and minifies its graph."""
        self.folder.mkdir(parents=True, exist_ok=True)
        provoked = self._ours(f"provoke-{after}", "provoke", after)
        launcher = max(self.folder.rglob(LAUNCHER), key=lambda path: path.stat().st_mtime, default=None)
        if launcher is None:
            if provoked.code is None:
                return Tried(said=OUT_OF_TIME)
            if provoked.code != 0:
                return Tried(said=f"failed: {provoked.last_line}")
            return Tried(said=f"failed: {provoked.error}" if NOT_COMPARED in provoked.output else NOTHING)
        result = self.folder / RESULT
        result.unlink(missing_ok=True)  # torch puts the whole graph there, too
        launcher.write_text(self._with_compiler(launcher.read_text("utf-8")), encoding="utf-8")
        # isolated, each query would import torch
        words = [sys.executable, str(launcher), "minify", "--no-isolate"]
        minified = self.run(
            f"minify-{after}", words, self.folder, self._environment(), FOR_MINIFYING * self.left()
        )
        if not result.exists():
            if minified.code is None:
                return Tried(said=OUT_OF_TIME)
            return Tried(said=NOTHING + ("" if minified.code == 0 else f": {minified.last_line}"))
        script = self.folder.parent / f"{self.folder.name}.py"
        script.write_text(self._with_compiler(result.read_text("utf-8")), encoding="utf-8")
        early = f", {OUT_OF_TIME} before the end" if minified.code is None else ""
        return Tried(said=f"found a graph{early}; {self._verdicts(script)}", script=script.name)

    def _verdicts(self, script: Path) -> str:
        """What a fresh interpreter says about the script, by torch's rule and by ours."""
        if self.left() < LEAST_S:
            return "no time was left to run its script"
        shown = self.run(
            "run", [sys.executable, str(script), "run"], self.folder, self._environment(), self.left() / 2
        )
        theirs = "the script shows the fault by torch's rule"
        if shown.code is None:
            theirs = f"the script was {OUT_OF_TIME}"
        elif shown.code == 0:
            theirs = "the script does not show the fault by torch's rule"
        elif "AccuracyError" not in shown.output:
            theirs = f"the script does not run: {shown.last_line}"
        if self.left() < LEAST_S:
            return theirs
        judged = self._ours("judge", "judge", str(script))
        word = judged.last_line.partition("verdict: ")[2]
        ours = word or (OUT_OF_TIME if judged.code is None else f"it does not run ({judged.last_line})")
        return f"{theirs}; by our rule: {ours}"

    def _ours(self, log: str, what: str, argument: str) -> Ended:
        """A process of ``harness.worker.localize.minified``. Only when it provokes does torch compare."""
        request = self.folder / f"{what}.json"
        asked: dict[str, Any] = {
            "job": to_json(self.job),
            "compiler": self.compiler,
            "module": self.module,
            "folder": str(self.folder),
            "argument": argument,
        }
        request.write_text(json.dumps(asked), encoding="utf-8")
        words = [sys.executable, "-m", f"{PACKAGE}.minified", what, str(request)]
        more = {}
        if what == "provoke":
            more = {"TORCHDYNAMO_REPRO_AFTER": argument, "TORCHDYNAMO_REPRO_LEVEL": "4"}
        return self.run(log, words, self.here, {**self._environment(), **more}, self.left())

    def _environment(self) -> dict[str, str]:
        paths = [str(ROOT), str(self.here), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "TORCH_COMPILE_DEBUG_DIR": str(self.folder),
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",  # a cached graph would not be compared
            # with the backward, after Dynamo, torch compares only what compiles to a module
            "TORCHDYNAMO_REPRO_FORWARD_ONLY": "1",
        }

    def _with_compiler(self, text: str) -> str:
        """Torch's script, with the lines that make a compiler of the user's own known by its name."""
        source = self.job.own_compilers.get(self.compiler)
        if source is None:
            return text
        lines = (
            "import sys",
            f"sys.path.insert(0, {str(ROOT)!r})",
            f"from {PACKAGE}.minified import register_own",
            f"register_own({self.compiler!r}, {source!r}, {str(self.here)!r})",
        )
        return "\n".join((*lines, text))


def run_process(
    log: str, words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> Ended:
    """The command with its output in ``<log>.log`` of the debugging folder. Ends all of its processes."""
    path = Path(environment["TORCH_COMPILE_DEBUG_DIR"]) / f"{log}.log"
    with path.open("wb") as file:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Ended(code=code, output=path.read_text(encoding="utf-8", errors="replace"))


def try_torch(
    job: Job,
    candidate: str,
    compiler: str,
    module: str,
    folder: Path,
    seconds: float = LIMIT_S,
    run: Run = run_process,
) -> Tried:
    """Torch's minifier on the submodule ``module`` compiled by ``compiler``. Its files are in ``folder``.

    The folder of its processes, with their logs and the graph's inputs, is ``torch-minifier-<candidate>``.
    """
    if min(seconds, LIMIT_S) < LEAST_S:
        return Tried(said=OUT_OF_TIME)
    attempt = Attempt(
        job=job,
        compiler=compiler,
        module=module,
        folder=(folder / f"torch-minifier-{file_name(candidate)}").resolve(),
        deadline=time.monotonic() + min(seconds, LIMIT_S),
        run=run,
    )
    shutil.rmtree(attempt.folder, ignore_errors=True)
    tried = Tried(said=NOTHING)
    for after in ("aot", "dynamo") if compiler in PRESETS else ("dynamo",):
        tried = attempt.found(after)
        if tried.said != NOTHING or attempt.left() < LEAST_S:
            break
    return tried
