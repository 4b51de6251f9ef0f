"""Questions to a worker's interpreter, which may import torch, model libraries and the user's files.

The parent may not. ``harness.probes.answering`` is the other side. By the answers, the parent checks, before
anything is measured, whether this machine can run it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import IO, Any

from harness.codec import from_json, to_json
from harness.devices import of
from harness.failures import exit_name
from harness.hardware.cpus import usable_cpus
from harness.loading.own_model import suite_of
from harness.schema import Case, Job, Protocol, Setting
from harness.settings import is_own_model
from harness.shapes.sizes import largest_case
from runner.errors import UsageError
from runner.names import counted, plain, reason
from runner.plan.compilers import LEAVE_OUT, Ask, Usable, with_availability
from runner.plan.config import RunConfig
from runner.plan.interpreter import base_environment, worker_environment

LIMIT_S = 180.0  # importing torch for the first time, from a cold disk
LEAST_S = 30.0  # of a limit that the user gave: starting Python and importing torch
BUILD_S = 20.0  # a model that takes longer to build is built by its worker alone
GOODBYE_S = 6.0
WHERE_IT_BEGAN = "go on where the run began, or on a machine like it"
NO_TORCH = "torch cannot be imported here; install it (make bench does), then try again"


class NoAnswer(Exception):
    """The interpreter did not answer. Its words continue a sentence; ``code`` is its exit code."""

    def __init__(self, why: str, *, code: int | None = None, missing: str = "") -> None:
        super().__init__(why)
        self.code = code  # None: it raised, or was ended after the limit
        self.missing = missing  # the package that cannot be imported

    def of_torch(self) -> str:
        return NO_TORCH if self.missing == "torch" else f"torch cannot be used here: {self}"


def limit_for(protocol: Protocol) -> float:
    """Seconds for one question: the user's limit for building a model, or else ``LIMIT_S``."""
    given = protocol.phase_timeouts_s.get("build", protocol.timeout_s)
    return LIMIT_S if given == Protocol().timeout_s else max(given, LEAST_S)


def missing_devices(devices: Sequence[str]) -> dict[str, str]:
    """Missing device -> reason. Raises ``UsageError`` if torch cannot be imported."""
    return devices_here(devices)["missing"]


def devices_here(devices: Sequence[str]) -> dict[str, dict[str, str]]:
    """The answer of ``harness.probes.devices``. Raises ``UsageError`` if torch cannot be imported."""
    try:
        answer: dict[str, dict[str, str]] = _ask("harness.probes.devices", devices)
    except NoAnswer as error:
        raise UsageError(f"--devices: {error.of_torch()}") from None
    return answer


def ask_suite(suite: str, patterns: Sequence[str]) -> dict[str, tuple[str, ...] | str]:
    """Name or glob -> the matching names in the suite's library, or a sentence why there are none."""
    try:
        answer = _ask("harness.probes.suite", [json.dumps({"suite": suite, "patterns": list(patterns)})])
    except NoAnswer as error:
        raise UsageError(
            f"--only: the model library of suite {suite} cannot be used here, so {', '.join(patterns)} "
            f"cannot be looked up ({error}); install it (make bench does), or choose from --list"
        ) from None
    names = answer["names"].items()
    return {str(name): matches if isinstance(matches, str) else tuple(matches) for name, matches in names}


def listed_cases(
    suite: str, setting: Setting, names: Sequence[str] | None = None, *, limit_s: float = LIMIT_S
) -> tuple[Case, ...]:
    """The cases in the user's own suite file; with ``names``, those. A ``UsageError`` names the file."""
    question = {"suite": suite, "setting": to_json(setting), **({} if names is None else {"names": names})}
    needs = "a suite needs cases(setting) and build(case)"
    try:
        answer = _ask("harness.probes.suite", [json.dumps(question)], limit_s=limit_s)
    except NoAnswer as error:
        raise UsageError(f"--suites: {suite} cannot be listed: {error}; {needs}") from None
    if "wrong" in answer:
        raise UsageError(f"--suites: {suite} cannot be listed: {reason(answer['wrong'])}; {needs}")
    return tuple(from_json(Case, case) for case in answer["cases"])


def usable_compilers(
    device_type: str,
    names: Sequence[str] = (),
    python: str | None = None,
    *,
    own: Mapping[str, str] | None = None,
    suites: Iterable[str] = (),
) -> dict[str, Usable]:
    """Whether these compilers (no names: all) can be used, as a worker's interpreter reports.

    ``python`` is another interpreter. ``own`` maps the user's own compilers to their functions; files in
    ``suites`` may register more compilers with torch. Raises ``UsageError`` if the interpreter cannot say.
    """
    own = own or {}
    # the user's files and modules, which bundled suites are not in
    files = [suite_of(name) for name in suites if name.endswith(".py") or is_own_model(name)]
    words = [*(f"--own={name}={source}" for name, source in own.items()), *(f"--file={f}" for f in files)]
    try:
        answer = _ask("harness.probes.compilers", [device_type, *names, *words], python)
    except NoAnswer as error:
        theirs = " and ".join(dict.fromkeys((*own.values(), *files)))
        if theirs and not error.missing:
            raise UsageError(f"--compilers: {theirs} cannot be loaded: {error}") from None
        raise UsageError(f"--compilers: {error.of_torch()}") from None
    return {
        str(name): Usable(what=str(entry["what"]), why_not=entry["why"], modes=tuple(entry["modes"]))
        for name, entry in answer.items()
    }


def asking_for(jobs: Iterable[Job], python: str | None = None) -> Ask:
    """``usable_compilers`` with the own compilers and files of these jobs."""
    own = {name: source for job in jobs for name, source in job.own_compilers.items()}
    suites = tuple(dict.fromkeys(job.case.suite for job in jobs))
    return partial(usable_compilers, python=python, own=own, suites=suites)


def what_is_wrong(
    cases: Sequence[Case],
    inductor_config: Sequence[str],
    functions: Mapping[str, str],
    python: str | None = None,
    *,
    limit_s: float = LIMIT_S,
) -> str | None:
    """A sentence about what is wrong with these cases of the user's own models, settings or functions.

    None if nothing is wrong, or if the interpreter gave no answer: the job's worker then finds the fault. A
    model that takes long to build is not refused: its worker builds it, and makes the record.
    """
    question = {
        "cases": to_json(tuple(cases)),
        "inductor_config": list(inductor_config),
        "functions": dict(functions),
        "build_s": min(BUILD_S, limit_s),
    }
    try:
        wrong = _ask("harness.probes.plan", [json.dumps(question)], python, limit_s=limit_s)["wrong"]
    except NoAnswer as error:
        if error.code == -signal.SIGALRM:
            what = f"building the model takes longer than {question['build_s']:g} s"
            print(f"note: {what}, so its worker alone checks it", file=sys.stderr)
        return None
    return None if wrong is None else plain(str(wrong))


def _ask(module: str, words: Sequence[str], python: str | None = None, *, limit_s: float = LIMIT_S) -> Any:
    """The answer of ``python -m module``. Raises ``NoAnswer``."""
    command = [python or sys.executable, "-u", "-m", module, *words]
    base = base_environment() if python else os.environ
    lines, code, log = printed_by(command, worker_environment(None, base), limit_s)
    reply: dict[str, Any] = {}
    try:
        for line in lines:
            reply.update(json.loads(line))
    except (TypeError, ValueError, RecursionError):
        raise NoAnswer(
            "its answer cannot be read (is the folder of temporary files full, or the size of files limited?)"
        ) from None
    if "answer" in reply:
        return reply["answer"]
    if "raised" in reply:
        raise NoAnswer(reason(reply["raised"]), missing=str(reply["missing"] or ""))
    code = reply.get("ended", code)
    said = f", after {reason(log[-1].strip())!r}" if log else ""
    raise NoAnswer(f"it ended Python ({exit_name(code)}{said})", code=code)


def printed_by(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> tuple[list[str], int, list[str]]:
    """The lines that a program prints, its code, and its lines on stderr. ``NoAnswer`` after the limit."""
    # files: a process that inherits a pipe and lives on would keep it open
    with tempfile.TemporaryFile() as replies, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=replies,
            stderr=log,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"it did not answer in {limit_s:g} s") from None
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it first ends all that it started
            try:
                process.wait(GOODBYE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return _lines(replies), process.returncode, _lines(log)


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


# -- what this machine can run --------------------------------------------------------------------------


def possible_here(config: RunConfig, jobs: tuple[Job, ...], *, instead: str = LEAVE_OUT) -> tuple[Job, ...]:
    """The jobs, with what is unavailable here. ``instead``: the advice where a compiler cannot be used."""
    check_hardware(jobs)
    if not config.environments:
        jobs = with_availability(jobs, asking_for(jobs), skip=config.skip_unavailable, instead=instead)
    check_jobs(jobs)
    return jobs


def check_hardware(jobs: Sequence[Job], *, instead: str = "use --devices=cpu") -> None:
    """``UsageError`` if this machine lacks the CPUs or the devices of a job. ``instead``: the advice then."""
    for job in jobs:
        check_threads(job, "--sweep" if "threads" in job.case.at else "--threads")
    ours = [job for job in jobs if not job.environments]  # an environment's torch answers for its devices
    check_devices(list(dict.fromkeys(job.device for job in ours)), instead)


def check_threads(job: Job, flag: str) -> None:
    """Raises ``UsageError`` for more threads than usable CPUs: their waiting times would be measured."""
    threads, cpus = job.protocol.threads, len(usable_cpus())
    if threads is not None and threads > cpus:
        raise UsageError(f"{flag}: {threads} is more than the {counted(cpus, 'usable CPU')} of this machine")


def check_devices(devices: Sequence[str], instead: str = "use --devices=cpu") -> None:
    """Raises ``UsageError`` for a device that is not there. Asks a worker's torch, except for the CPU."""
    wanted = [device for device in devices if of(device).accelerated]
    for device, why in missing_devices(wanted).items() if wanted else ():
        raise UsageError(f"--devices: {device} is not there ({why}); {instead}")


def check_jobs(jobs: Sequence[Job]) -> None:
    """``UsageError`` for a model or function of the user's own, or a setting, that no worker can use."""
    own = {  # with --shapes, a process builds the largest size
        (case.suite, case.mode): largest_case(case, sizes) if sizes else case
        for case, sizes in ((job.case, job.extras.shapes) for job in jobs if is_own_model(job.case.suite))
    }
    settings = tuple(dict.fromkeys(text for job in jobs for text in job.options.inductor_config))
    optimizers = [job.protocol.optimizer for job in jobs if is_own_model(job.protocol.optimizer)]
    functions = {"--optimizer": optimizers[0]} if optimizers else {}
    if own or settings or functions:
        limit_s = limit_for(jobs[0].protocol)
        python = next((environment.python for environment in jobs[0].environments), None)
        if why := what_is_wrong(tuple(own.values()), settings, functions, python, limit_s=limit_s):
            raise UsageError(why)
