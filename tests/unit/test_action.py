"""action.yml: the shell of each step is executed, with stand-ins for python, torchduet and gh."""

import functools
import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import executable, git, ran

ROOT = Path(__file__).parents[2]
PYTHON = """\
#!/bin/bash
# stands in for python: makes environments whose programs write down what they are called with
echo "python $*" >> "$CALLS"
if [[ "$*" == *venv* ]]; then
  mkdir -p "${@: -1}/bin"
  cp "$0" "${@: -1}/bin/python"
  cp "$FAKES/torchduet" "${@: -1}/bin/torchduet"
fi
"""
TORCHDUET = """\
#!/bin/bash
echo "torchduet $*" >> "$CALLS"
if [[ "$*" == *--compare* ]]; then
  cat "$FAKES/changes.md"
  echo "a reason" >&2
  exit "${COMPARED:-0}"
fi
mkdir run
exit "${MEASURED:-0}"
"""
GH = """\
#!/bin/bash
echo "gh $*" >> "$CALLS"
[[ "$*" == *--jq* ]] && { cat "$FAKES/comments" 2>/dev/null; exit 0; }
exit "${REFUSED:-0}"
"""


@functools.cache
def action() -> dict[str, Any]:
    content: dict[str, Any] = importlib.import_module("yaml").safe_load((ROOT / "action.yml").read_text())
    return content


@dataclass
class Job:
    """A runner's folder and variables, with the programs that the steps call."""

    folder: Path
    inputs: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)

    def step(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        (entry,) = (step for step in action()["runs"]["steps"] if step["id"] == name)
        (self.folder / "output").write_text("")
        variables = {key: self._filled(value) for key, value in entry.get("env", {}).items()}
        runner = {
            "PATH": f"{self.folder / 'fakes'}:{os.environ['PATH']}",
            "FAKES": str(self.folder / "fakes"),
            "CALLS": str(self.folder / "calls"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_REPOSITORY": "someone/project",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        done = ran(
            *("/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", entry["run"]),
            cwd=self.folder / "workspace",
            env={**os.environ, **runner, **variables, **more},
        )
        for line in (self.folder / "output").read_text().splitlines():
            key, _, value = line.partition("=")
            self.outputs[f"{name}.{key}"] = value
        return done

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("inputs."):
                return self.inputs[name.removeprefix("inputs.")]
            if name.startswith("steps."):
                _, step, _, output = name.split(".")
                return self.outputs[f"{step}.{output}"]
            return {"github.action_path": "/the/action", "github.event.pull_request.number": "7"}[name]

        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


def built(folder: Path, install: str) -> Job:
    """A repository with a base and a pull request, and the inputs' defaults."""
    for name, text in (("python", PYTHON), ("torchduet", TORCHDUET), ("gh", GH)):
        (folder / "fakes").mkdir(exist_ok=True)
        executable(folder / "fakes" / name, text)
    for name in ("temp", "origin"):
        (folder / name).mkdir()
    origin = folder / "origin"
    git(origin, "init", "--quiet")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    for side in ("base", "pr"):
        (origin / "side").write_text(side)
        git(origin, "add", ".")
        git(origin, "commit", "--quiet", "-m", side)
    git(folder, "clone", "--quiet", "--depth=1", f"file://{origin}", "workspace")
    inputs = {name: str(field.get("default", "")) for name, field in action()["inputs"].items()}
    inputs |= {
        "measure": "--model 'pkg.models:make' --training --tag='two words'",
        "base": git(origin, "rev-parse", "HEAD~"),
        "token": "secret",
        "install": install,
    }
    return Job(folder=folder, inputs=inputs)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """After its first step."""
    job = built(tmp_path_factory.mktemp("job"), 'python -m pip install "$(cat side)"')
    done = job.step("environments")
    assert done.returncode == 0, done.stderr
    return job


def test_both_sides_are_installed_each_in_its_own_environment(job: Job) -> None:
    work = job.folder / "temp" / "torchduet"
    assert job.calls[:6] == [
        *(f"python -m venv --system-site-packages {work}/env-base", "python -m pip install base"),
        *(f"python -m venv --system-site-packages {work}/env-pr", "python -m pip install pr"),
        f"python -m venv --system-site-packages {work}/env-torchduet",
        "python -m pip install --quiet /the/action",
    ]


def test_a_project_that_cannot_be_installed_ends_the_job(tmp_path: Path) -> None:
    assert built(tmp_path, "false; true").step("environments").returncode == 1


@pytest.mark.parametrize(("measured", "code"), [("0", 0), ("1", 0), ("2", 2)])
def test_sides_are_measured_in_one_run_and_bad_input_ends_the_job(job: Job, measured: str, code: int) -> None:
    work = job.folder / "temp" / "torchduet"
    shutil.rmtree(work / "run", ignore_errors=True)
    assert job.step("measure", MEASURED=measured).returncode == code
    assert job.calls[-1] == (
        "torchduet --model pkg.models:make --training --tag=two words "
        f"--envs base={work}/env-base/bin/python --envs pr={work}/env-pr/bin/python --output-dir=run"
    )
    assert job.outputs["measure.folder"] == f"{work}/run"


def compared(job: Job, code: str = "0", changes: str = "## What changed between two runs\n") -> str:
    """What is added to the summary."""
    (job.folder / "fakes" / "changes.md").write_text(changes)
    (job.folder / "summary.md").unlink(missing_ok=True)
    assert job.step("compare", COMPARED=code).returncode == 0
    return (job.folder / "summary.md").read_text()


@pytest.mark.parametrize("code", ["0", "1", "2", "3"])
def test_the_comparison_is_the_summary_and_its_code_is_that_of_the_job(job: Job, code: str) -> None:
    text = compared(job, code)
    assert job.calls[-1] == (
        "torchduet --compare run@base run@pr --fail-on=regression:5%,parity,graph-breaks --format=md"
    )
    assert text.startswith("<!-- torchduet -->\n")
    assert "## What changed between two runs" in text
    assert ("a reason" in text, job.step("verdict").returncode) == (code == "2", int(code))
    assert job.step("verdict", OPEN="warn").returncode == int(code) % 3


def test_a_long_comparison_is_cut_between_characters(job: Job) -> None:
    compared(job, changes="±" * 60_000)
    body = (job.folder / "temp" / "torchduet" / "comment.md").read_bytes()
    assert len(body.decode()) < 65_536
    assert len(body) <= 65_000


def test_the_comment_is_made_once_and_updated_afterwards_and_a_refused_one_is_a_warning(job: Job) -> None:
    compared(job)
    body = job.folder / "temp" / "torchduet" / "comment.md"
    assert job.step("comment").returncode == 0
    assert job.calls[-1] == (
        f"gh api --silent --method POST repos/someone/project/issues/7/comments --field body=@{body}"
    )
    (job.folder / "fakes" / "comments").write_text("11\n12\n")
    done = job.step("comment", REFUSED="1")
    assert done.returncode == 0
    assert job.calls[-1] == (
        f"gh api --silent --method PATCH repos/someone/project/issues/comments/11 --field body=@{body}"
    )
    assert "::warning::the comment was refused" in done.stdout


def test_no_input_is_pasted_into_a_shell() -> None:
    assert [step["id"] for step in action()["runs"]["steps"] if "${{" in step["run"]] == []
