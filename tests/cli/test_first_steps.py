"""The blocks that the first pages ask a newcomer to type, typed."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command import ROOT, records, runner
from tests.command_line import parsed

YOUR_MODEL, GETTING_STARTED = (ROOT / "docs" / name for name in ("YOUR_MODEL.md", "GETTING_STARTED.md"))
BLOCK = re.compile(r"^```python\n# (my_models\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^python runner\.py (.*my_models.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(YOUR_MODEL, marks=pytest.mark.long, id="own"),
        pytest.param(GETTING_STARTED, marks=pytest.mark.slow, id="started"),
    ],
)
def test_ones_own_model_works_as_the_page_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ((name, source),), (command,) = BLOCK.findall(text), COMMAND.findall(text)
    (tmp_path / name).write_text(source, encoding="utf-8")
    run = tmp_path / "run"
    asked = [word for word in shlex.split(command) if not word.startswith(("--compilers", "--output-dir"))]
    # what is measured is the page's; with eager alone it takes no minute of compiling
    quick = ("--compilers=eager", "-n6", "--devices=cpu", "--threads=1", f"--output-dir={run}")
    done = runner(*asked, *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["status"] for record in records(run)] == ["pass"]
    assert (run / "report.html").stat().st_size > 1_000_000


def test_every_command_on_the_first_page_is_understood() -> None:
    text = GETTING_STARTED.read_text(encoding="utf-8")
    commands = re.findall(r"^python runner\.py (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(commands) > 3
    for command in commands:
        if "my_" not in command:  # a file of theirs: typed above
            parsed(shlex.split(command))
