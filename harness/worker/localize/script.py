"""The script that shows a localized fault in a fresh interpreter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from harness.codec import to_json
from harness.schema import Job

PACKAGE = __name__.rpartition(".")[0]  # inside another package in the wheel
SHOWN, NOT_SHOWN, NOT_RUN = 1, 0, 2
"""Exit codes: the fault shows; it does not; the model or the compiler does not run."""

TEMPLATE = '''"""Shows a wrong result of {compiler} in {case}, in {part}.

    python {file}

It builds the model from its seed, takes the inputs that eager gives this part, compiles the part alone, and
compares outputs and gradients with eager and fp64. Beside the verdict, it prints that of PyTorch's own
harness (torch._dynamo.utils.same), by which reports upstream are judged. The fault was:
{why}

Exit code: {shown}, the fault shows; {not_shown}, it does not; {not_run}, the part does not run.
"""

# torch's own minifier looks at one graph, with a tolerance of 1e-3. To try it, set before the command:
#     TORCHDYNAMO_REPRO_AFTER=aot (or dynamo) TORCHDYNAMO_REPRO_LEVEL=4

import json
import os
import sys

COMPILER = {compiler!r}
SUBMODULE = {name!r}  # empty: the whole model
JOB = r"""
{job}
"""

sys.path.insert(0, {root!r})
os.chdir({folder!r})
try:
    from {package}.search import replay
except ModuleNotFoundError as error:
    print(f"{{error}}: this Python needs torch and the libraries of the model", file=sys.stderr)
    raise SystemExit({not_run})

raise SystemExit(replay(json.loads(JOB), COMPILER, SUBMODULE))
'''


def write_script(job: Job, compiler: str, name: str, why: str, file: str) -> str:
    """The text of the script for the submodule ``name`` ("" is the whole model)."""
    job = replace(job, candidates=(compiler,), environments=())
    case = job.case
    return TEMPLATE.format(
        compiler=compiler,
        case=f"{case.name} ({case.suite}, {case.mode.value}, {job.dtype}, {job.device})",
        part=f"its submodule {name}" if name else "the whole model",
        file=file,
        why=why.replace("\\", "/").replace('"""', "'''"),
        shown=SHOWN,
        not_shown=NOT_SHOWN,
        not_run=NOT_RUN,
        name=name,
        job=json.dumps(to_json(job), indent=1, sort_keys=True),
        package=PACKAGE,
        root=str(Path(__file__).resolve().parents[PACKAGE.count(".") + 1]),
        folder=str(Path.cwd()),
    )
