"""``python -m harness.probes.plan JSON``: checks the user's own models and settings before a run.

The argument is ``{"cases": [case, ...], "inductor_config": ["key=value", ...]}``, the answer
``{"wrong": sentence or null}``. An exception of the model's own function is not reported here: the run
makes a record of it, with the traceback in the log. The model's own output goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from harness.backends import why_no_such_setting
from harness.codec import from_json
from harness.loading.given import why_not_trainable
from harness.loading.own_model import OwnModel, module_of
from harness.loading.python_file import load_file
from harness.schema import Case, Mode
from harness.workload import Workload


def what_is_wrong(cases: Sequence[Case], inductor_config: Sequence[str]) -> str | None:
    """The first problem, as a sentence that names its flag; None if there is none."""
    why = why_no_such_setting(inductor_config)
    if why is not None:
        return f"--inductor-config: {why}"
    return next((why for case in cases if (why := _of_model(case)) is not None), None)


def _of_model(case: Case) -> str | None:
    try:
        workload = OwnModel(case.suite).build(case)
    except (LookupError, TypeError) as error:
        text = str(error.args[0]) if error.args else ""
        return text if text.startswith("--") else _of_import(case.suite)
    except BaseException:  # the user's code may raise anything, also SystemExit
        return _of_import(case.suite)
    return of_workload(workload, case.suite, case.mode)


def of_workload(workload: Workload, name: str, mode: Mode) -> str | None:
    """Why this workload cannot run in this mode, as a sentence that names the flag; None if it can."""
    if mode is Mode.GENERATE and workload.drive is None:
        return f"--generate: {name} does not say how it generates (a Workload with drive)"
    why = why_not_trainable(workload) if mode is Mode.TRAINING else None
    return f"--training: of {name}, {why}" if why is not None else None


def _of_import(spec: str) -> str | None:
    """Why the model's file or module cannot be imported; None if it can."""
    name = module_of(spec)
    try:
        load_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except SyntaxError as error:
        return f"--model: {error.filename or name}, line {error.lineno}: {error.msg}"
    except BaseException as error:  # the user's code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        words = " ".join(str(error).split())[:300]
        return f"--model: {name} cannot be imported: {type(error).__name__}: {words}{place}"
    return None


def main(argument: str) -> None:
    asked = json.loads(argument)
    with contextlib.redirect_stdout(sys.stderr):
        cases = [from_json(Case, case) for case in asked["cases"]]
        wrong = what_is_wrong(cases, asked["inductor_config"])
    print(json.dumps({"wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1])
