"""Measures the models of ``examples/own_models.py`` and writes the results to examples/README.md.

python benchmarks/own_models.py             measures, in about 15 minutes on two busy cores
python benchmarks/own_models.py FOLDER...   writes the page from finished runs
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.common import folder_for, records_of  # noqa: E402 - works without an installed project
from examples import own_models  # noqa: E402
from harness.schema import Record  # noqa: E402
from runner.labels import notes_of  # noqa: E402

PAGE = ROOT / "examples" / "README.md"
FILE = "examples/own_models.py"
COMPILERS = ("eager", "aot_eager", "inductor")
FLAGS = ("--training", "--inference", f"--compilers={','.join(COMPILERS)}", "-dcpu", "--threads=1", "-n6")

HEAD = """\
# Twenty kinds of own models

Users' models differ from the models of the suites. [own_models.py](own_models.py) has
twenty kinds of models, with one function for each. The table shows the result of each model in training and
in inference. Each result is a pass, or the last column gives the reason. `python benchmarks/own_models.py`
measures all models again and writes this page.

{when}, torch {torch}, Python {python}, {cpu}. The command had a `--model` for each function:

```
python runner.py --model={file}:sequential {flags}
```

`eager` is the A/A control: eager compared with itself. [FORMAT.md](../docs/FORMAT.md#status) defines the
status words. The table has no times: six rounds on a shared machine show that every model is measured, but
they are too few for a speedup.

| model | step | eager | aot_eager | inductor | messages |
|---|---|---|---|---|---|
"""


def main(argv: list[str]) -> int:
    """Writes the page from the given run folders. Without folders, measures first."""
    if argv:
        PAGE.write_text(page(*map(Path, argv)), encoding="utf-8")
        return 0
    with folder_for(None, "own-models") as folder:
        models = [f"--model={FILE}:{name}" for name in own_models.MODELS]
        words = [sys.executable, "runner.py", *models, *FLAGS, f"--output-dir={folder}"]
        subprocess.run(words, cwd=ROOT, check=False)  # it exits with 1, because some models fail
        PAGE.write_text(page(folder), encoding="utf-8")
    return 0


def page(*folders: Path) -> str:
    """The page of the runs in ``folders``. If several folders have a result, the last one counts."""
    records = [one for folder in folders for one in records_of(folder)]
    lines: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        case = record.job.case
        lines.setdefault((case.name, case.mode.value), {})[record.candidate] = record
    facts = next(record.environment for record in records if record.environment)
    head = HEAD.format(
        when=records[0].started[:10],
        torch=facts.get("torch"),
        python=facts.get("python"),
        cpu=facts.get("cpu"),
        file=FILE,
        flags=" ".join(FLAGS),
    )
    order = sorted(lines, key=lambda one: (own_models.MODELS.index(one[0]), one[1] != "training"))
    return head + "".join(_line(*one, lines[one]) for one in order)


def _line(model: str, mode: str, found: dict[str, Record]) -> str:
    statuses = [found[name].status.value if name in found else "" for name in COMPILERS]
    said = dict.fromkeys(sentence for record in found.values() for sentence in _said(record))
    words = "; ".join(said).replace("|", "\\|")
    return f"| {' | '.join((model, mode, *statuses, words))} |\n"


def _said(record: Record) -> list[str]:
    sentences = [note for note in notes_of(record) if not note.startswith("measured in a fresh worker")]
    if record.failure is not None:
        message = record.failure.message.replace(f"{record.candidate} was asked", "the compiler was asked")
        sentences.append(message.removesuffix("."))
    if record.parity is not None and record.parity.random:
        sentences.append(f"eager draws random numbers: {record.parity.random}")
    elif record.parity is not None and record.parity.failed and record.parity.worst is not None:
        sentences.append(f"{record.candidate}: {record.parity.worst.name}: {record.parity.worst.failure}")
    return sentences


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
