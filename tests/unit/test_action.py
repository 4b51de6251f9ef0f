"""action.yml: the shell of each step is executed, with stand-ins for python, torchduet and gh."""

import importlib
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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


def action() -> dict[str, Any]:
    found: dict[str, Any] = importlib.import_module("yaml").safe_load((ROOT / "action.yml").read_text())
    return found


@dataclass
class Job:
    """A runner's folder and variables, with the programs that the steps call."""

    folder: Path
    inputs: dict[str, str]
    outputs: dict[str, str] = field(default_factory=dict)

    def step(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        (found,) = (step for step in action()["runs"]["steps"] if step["id"] == name)
        (self.folder / "output").write_text("")
        variables = {key: self._filled(value) for key, value in found.get("env", {}).items()}
        done = subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
            cwd=self.folder / "workspace",
            env={**os.environ, **self.variables(), **variables, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in (self.folder / "output").read_text().splitlines():
            key, _, value = line.partition("=")
            self.outputs[f"{name}.{key}"] = value
        return done

    def variables(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.folder / 'fakes'}:{os.environ['PATH']}",
            "FAKES": str(self.folder / "fakes"),
            "CALLS": str(self.folder / "calls"),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_REPOSITORY": "someone/project",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }

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


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A repository with a base and a pull request, and the inputs' defaults."""
    for name, text in (("python", PYTHON), ("torchduet", TORCHDUET), ("gh", GH)):
        (tmp_path / "fakes").mkdir(exist_ok=True)
        (tmp_path / "fakes" / name).write_text(text)
        (tmp_path / "fakes" / name).chmod(0o755)
    (tmp_path / "fakes" / "changes.md").write_text("## What changed between two runs\n")
    for name in ("temp", "origin"):
        (tmp_path / name).mkdir()
    origin = tmp_path / "origin"
    git(origin, "init", "--quiet")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    for side in ("base", "pr"):
        (origin / "side").write_text(side)
        git(origin, "add", ".")
        git(origin, "commit", "--quiet", "-m", side)
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", "workspace")
    inputs = {name: str(one.get("default", "")) for name, one in action()["inputs"].items()}
    inputs |= {
        "measure": "--model 'pkg.models:make' --training --tag='two words'",
        "base": git(origin, "rev-parse", "HEAD~"),
        "token": "secret",
    }
    return Job(folder=tmp_path, inputs=inputs)


def test_both_sides_are_installed_each_in_its_own_environment(job: Job) -> None:
    job.inputs["install"] = 'python -m pip install "$(cat side)"'
    done = job.step("environments")
    assert done.returncode == 0, done.stderr
    work = job.folder / "temp" / "torchduet"
    assert job.calls == [
        f"python -m venv --system-site-packages {work}/env-base",
        "python -m pip install base",
        f"python -m venv --system-site-packages {work}/env-pr",
        "python -m pip install pr",
        f"python -m venv --system-site-packages {work}/env-torchduet",
        "python -m pip install --quiet /the/action",
    ]


def test_a_project_that_cannot_be_installed_ends_the_job(job: Job) -> None:
    job.inputs["install"] = "false; true"
    assert job.step("environments").returncode == 1


def ready(job: Job) -> None:
    assert job.step("environments").returncode == 0


@pytest.mark.parametrize(("measured", "code"), [("0", 0), ("1", 0), ("2", 2)])
def test_the_sides_are_measured_in_one_run_and_bad_input_ends_the_job(
    job: Job, measured: str, code: int
) -> None:
    ready(job)
    assert job.step("measure", MEASURED=measured).returncode == code
    work = job.folder / "temp" / "torchduet"
    assert job.calls[-1] == (
        "torchduet --model pkg.models:make --training --tag=two words "
        f"--envs base={work}/env-base/bin/python --envs pr={work}/env-pr/bin/python --output-dir=run"
    )
    assert job.outputs["measure.folder"] == f"{work}/run"


@pytest.mark.parametrize("code", ["0", "1", "2"])
def test_the_comparison_is_the_summary_and_its_code_is_that_of_the_job(job: Job, code: str) -> None:
    ready(job)
    assert job.step("compare", COMPARED=code).returncode == 0
    assert job.calls[-1] == (
        "torchduet --compare run@base run@pr --fail-on=regression:5%,parity,graph-breaks --format=md"
    )
    text = (job.folder / "summary.md").read_text()
    assert text.startswith("<!-- torchduet -->\n")
    assert "## What changed between two runs" in text
    assert ("a reason" in text) == (code == "2")
    assert job.step("verdict").returncode == int(code)


def test_accepted_changes_are_those_of_the_pull_request(job: Job) -> None:
    ready(job)
    job.inputs["accept"] = "ci/accepted changes.toml"
    assert job.step("compare").returncode == 0
    assert f" --accept={job.folder}/workspace/ci/accepted changes.toml --format=md" in job.calls[-1]


def test_a_long_comparison_is_cut_between_characters(job: Job) -> None:
    ready(job)
    (job.folder / "fakes" / "changes.md").write_text("±" * 60_000)
    assert job.step("compare").returncode == 0
    body = (job.folder / "temp" / "torchduet" / "comment.md").read_bytes()
    assert len(body.decode()) < 65_536
    assert len(body) <= 65_000


def test_the_comment_is_made_once_and_updated_afterwards(job: Job) -> None:
    ready(job)
    job.step("compare")
    body = job.folder / "temp" / "torchduet" / "comment.md"
    assert job.step("comment").returncode == 0
    assert job.calls[-1] == (
        f"gh api --silent --method POST repos/someone/project/issues/7/comments --field body=@{body}"
    )
    (job.folder / "fakes" / "comments").write_text("11\n12\n")
    assert job.step("comment").returncode == 0
    assert job.calls[-1] == (
        f"gh api --silent --method PATCH repos/someone/project/issues/comments/11 --field body=@{body}"
    )


def test_a_refused_comment_is_a_warning(job: Job) -> None:
    ready(job)
    job.step("compare")
    done = job.step("comment", REFUSED="1")
    assert done.returncode == 0
    assert "::warning::the comment was refused" in done.stdout


def test_no_input_is_pasted_into_a_shell() -> None:
    assert [step["id"] for step in action()["runs"]["steps"] if "${{" in step["run"]] == []
