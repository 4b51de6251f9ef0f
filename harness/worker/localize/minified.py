"""The processes that ``harness.worker.localize.minifier`` starts: one task each.

python -m harness.worker.localize.minified provoke REQUEST.json
python -m harness.worker.localize.minified judge REQUEST.json
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.backends import load_backend
from harness.backends.shared.options import inductor_settings
from harness.backends.shared.own import Own
from harness.codec import from_json
from harness.loading.suite_files import load_suite
from harness.schema import Case, Extras, Job, Mode, Status
from harness.worker.attempts import JobFailed
from harness.worker.localize.submodules import building_part
from harness.worker.session import Session
from harness.workload import Workload

SAID = {Status.FAIL_ACCURACY: "fails", Status.PASS: "passes"}
"""Our verdict on a graph, in words; other statuses by their name."""


def main(words: Sequence[str]) -> int:
    what, path = words
    request = json.loads(Path(path).read_text("utf-8"))
    job = from_json(Job, request["job"])
    torch.set_num_threads(job.protocol.threads or torch.get_num_threads())
    with ExitStack() as around:
        settings = inductor_settings(job.options.inductor_config)
        if settings:  # torch writes them into its script, which has no options
            around.enter_context(torch._inductor.config.patch(settings))  # noqa: SLF001 - public by its documents
        if what == "provoke":
            return provoke(job, request["compiler"], request["module"], Path(request["folder"]))
        return judge_script(job, request["compiler"], Path(request["argument"]))


def provoke(job: Job, compiler: str, module: str, folder: Path) -> int:
    """Compiles the submodule and checks it. Torch compares and writes its script, as the environment asks.

    The exit code is 0 if all ran, whatever our verdict is.
    """
    case = replace(job.case, loss="own") if module else job.case
    job = _checking(replace(job, case=case), compiler)
    build = building_part(load_suite(job.case.suite).build, module, job)
    compile = load_backend(compiler, job.own_compilers.get(compiler, ""))  # noqa: A001 - as backends call it
    session = Session(job, lambda _: None, build, {compiler: compile})
    try:
        session.open()
        os.chdir(folder)  # where torch writes; the paths of models and compilers have been used
        status = session.prepare(compiler)[0]
    except JobFailed as failed:
        print(failed.failure.message, flush=True)
        return 1
    print(f"torch has no objection; by our rule: {SAID.get(status, status.value)}")
    return 0


def judge_script(job: Job, compiler: str, script: Path) -> int:
    """Compiles the graph of a script of torch, and prints our verdict."""
    case = Case(
        suite=job.case.suite,
        name=script.stem,
        mode=Mode.INFERENCE,
        batch_size=None,
        published_batch_size=None,
    )
    job = _checking(replace(job, case=case), compiler)
    status: Status
    try:
        session = Session(job, lambda _: None, lambda _: workload_of_script(script))
        session.open()
        status = session.prepare(compiler)[0]
    except JobFailed as failed:
        status = failed.status
        print(failed.failure.message)
    print(f"verdict: {SAID.get(status, status.value)}")
    return 0


def _checking(job: Job, compiler: str) -> Job:
    protocol = replace(job.protocol, accuracy=True, performance=False)
    return replace(job, candidates=(compiler,), protocol=protocol, extras=Extras(), environments=())


def workload_of_script(script: Path) -> Workload:
    """Graph and inputs of a script that torch's minifier wrote."""
    from torch._dynamo.debug_utils import InputReader

    spec = importlib.util.spec_from_file_location("minified_graph", script)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # Dynamo looks it up there
    spec.loader.exec_module(found)
    saved = re.search(r"save_dir=('[^'\n]*'|None)", script.read_text("utf-8"))
    reader = InputReader(save_dir=ast.literal_eval(saved[1]) if saved else None)
    found.load_args(reader)
    args = [a.detach() if isinstance(a, torch.Tensor) else a for a in reader.args]
    return Workload(module=found.mod, args=tuple(args))


def register_own(name: str, source: str, folder: str) -> None:
    """Makes a compiler of the user's own known to torch by the name that torch's scripts call it."""
    with _inside(folder):
        function = Own.found(name, source).function
    known = getattr(function, "__name__", name)
    dynamo: Any = torch._dynamo  # noqa: SLF001 - public by its documents
    if known not in dynamo.list_backends(exclude_tags=()):
        dynamo.register_backend(compiler_fn=function, name=known)


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """With this current folder, for the paths and the modules of the user."""
    before: Any = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(folder)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
