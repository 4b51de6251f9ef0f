"""``python -m harness.probes.plan JSON``: checks the user's own models and settings before a run.

The argument is ``{"cases": [case, ...], "inductor_config": ["key=value", ...], "functions": {flag: source},
"build_s": 20.0}``, the answer ``{"wrong": sentence or null}``. An exception of the model's own function is
not reported here: the run makes a record of it, with the traceback in the log. So it does of a model that
cannot be used, if others can be: a flag that names nothing costs the run, and such a model itself alone.

A model that returns something wrong, or that cannot be trained, is found only by building it. So it is built
here, but for ``build_s`` seconds at most. SIGALRM then ends the process, also in the middle of a C function,
and the runner goes on: the model's worker builds it with its own limits.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from harness.backends import why_no_such_setting
from harness.backends.shared.own_compiler import function_at
from harness.codec import from_json
from harness.failures import words_of
from harness.loading.input_checks import why_not_trainable
from harness.loading.own_model import OwnModel, module_of
from harness.probes.answering import answer
from harness.schema import Case, Mode
from harness.workload import Workload


def what_is_wrong(
    cases: Sequence[Case], inductor_config: Sequence[str], functions: Mapping[str, str], build_s: float
) -> str | None:
    """The first problem that costs the run, as a sentence that names its flag; None if there is none."""
    why = why_no_such_setting(inductor_config)
    if why is not None:
        return f"--inductor-config: {why}"
    for flag, source in functions.items():
        try:
            function_at(source)
        except LookupError as error:
            return f"{flag}: {error}"
    of_model: dict[str, list[Case]] = {}
    for case in cases:
        of_model.setdefault(case.suite, []).append(case)
    try:
        reasons = [_of_model(modes, build_s) for modes in of_model.values()]
    except LookupError as error:
        return str(error.args[0])
    return reasons[0] if reasons and None not in reasons else None


def _of_model(cases: Sequence[Case], build_s: float) -> str | None:
    """``cases``: one model in different modes, so it is built once. ``LookupError``: a flag is wrong."""
    name = cases[0].suite
    why = _of_import(module_of(name))
    if why is not None:
        return why
    try:
        with _at_most(build_s):
            workload = OwnModel(name).build(cases[0])
    except (LookupError, TypeError) as error:
        text = str(error.args[0]) if error.args else ""
        if text.startswith("--") and type(error) is LookupError:
            raise
        return text if text.startswith("--") else None
    except BaseException:  # the user's code may raise anything, also SystemExit
        return None
    return next((why for case in cases if (why := of_workload(workload, name, case.mode)) is not None), None)


@contextmanager
def _at_most(limit_s: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def of_workload(workload: Workload, name: str, mode: Mode) -> str | None:
    """Why this workload cannot run in this mode, as a sentence that names the flag; None if it can."""
    if mode is Mode.GENERATE and workload.drive is None:
        return f"--generate: {name} does not say how it generates (a Workload with drive)"
    why = why_not_trainable(workload) if mode is Mode.TRAINING else None
    return f"--training: of {name}, {why}" if why is not None else None


def _of_import(name: str) -> str | None:
    """Why the model's file or module cannot be imported; None if it can. ``LookupError``: there is none."""
    from harness.loading.own_model_build import load_module

    try:
        load_module(name)
    except SyntaxError as error:
        place = error.filename or name
        return f"--model: {place}{f', line {error.lineno}' if error.lineno else ''}: {error.msg}"
    except BaseException as error:  # the user's code may raise anything
        if type(error) is LookupError:
            raise LookupError(f"--model: {error}") from None
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        words = " ".join(words_of(error).split())[:300]
        return f"--model: {name} cannot be imported: {type(error).__name__}: {words}{place}"
    return None


def reply(argument: str) -> dict[str, str | None]:
    question = json.loads(argument)
    question["cases"] = [from_json(Case, case) for case in question["cases"]]
    return {"wrong": what_is_wrong(**question)}


if __name__ == "__main__":
    answer(lambda: reply(sys.argv[1]))
