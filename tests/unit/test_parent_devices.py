"""What the parent asks and says about devices. Nothing is started: the answers are made up."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.protocol import Protocol
from harness.schema import Environment, Job
from runner.cli.main import main
from runner.engine import JobContext, Place, launch
from runner.engine.experiments import Attempt
from runner.errors import UsageError
from runner.plan import probe
from runner.plan.compilers import Usable, with_availability
from runner.plan.environments import prepare
from runner.plan.environments.prepare import Checked
from runner.plan.environments.spec import EnvSpec
from tests.factories import Capture, Patch, make_job, make_record

NONE = "torch 2.15.0+cu132 finds no CUDA device"


def missing(names: Sequence[str]) -> dict[str, str]:
    return {name: NONE for name in names if name.startswith("cuda")}


@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_a_missing_device_ends_a_run(monkeypatch: Patch, capsys: Capture, tmp_path: Path, name: str) -> None:
    monkeypatch.setattr(probe, "missing_devices", missing)
    words = ["--training", "--suites=tiny_gpt", f"--output-dir={tmp_path / 'run'}"]
    assert main([*words, f"--devices=cpu,{name}"]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"error: --devices: {name} is not there ({NONE}); use --devices=cpu\n"
    assert (printed.out, list(tmp_path.iterdir())) == ("", [])


def test_the_answer_of_the_workers_interpreter(monkeypatch: Patch) -> None:
    asked: list[tuple[Any, ...]] = []

    def answer(*given: Any) -> dict[str, Any]:
        asked.append(given)
        if "cuda" not in given[1]:
            raise probe.NoAnswer("ModuleNotFoundError", missing="torch")
        return {"missing": {"cuda": NONE}, "models": {}}

    monkeypatch.setattr(probe, "_ask", answer)
    assert probe.missing_devices(["cpu", "cuda"]) == {"cuda": NONE}
    with pytest.raises(UsageError, match="--devices: torch cannot be imported here"):
        probe.missing_devices(["xpu"])
    assert asked == [("harness.probes.devices", ["cpu", "cuda"]), ("harness.probes.devices", ["xpu"])]


def test_the_cpus_that_taskset_takes_away_are_not_counted(monkeypatch: Patch) -> None:
    monkeypatch.setattr(probe, "usable_cpus", lambda: (3, 5))

    def check(protocol: Protocol) -> None:
        probe.check_hardware([make_job("a", protocol=protocol)])

    check(Protocol(threads=2))
    with pytest.raises(UsageError, match=r"^--threads: 3 is more than the 2 usable CPUs of this machine$"):
        check(Protocol(threads=3))


def usable(device_type: str, names: Sequence[str], *_: object, **__: object) -> Mapping[str, Usable]:
    why = None if device_type == "cpu" else "tvm is not installed (pip install apache-tvm)"
    return {name: Usable(what="", why_not=why, modes=()) for name in names}


def test_each_kind_of_device_is_asked_for_its_compilers_once() -> None:
    jobs = tuple(make_job(device=device, candidates=("tvm",)) for device in ("cpu", "cuda:0", "cuda:1"))
    asked: list[str] = []

    def ask(device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
        asked.append(device_type)
        return usable(device_type, names)

    planned = with_availability(jobs, ask, skip=True)
    assert (asked, [bool(job.unavailable) for job in planned]) == (["cpu", "cuda"], [False, True, True])
    with pytest.raises(UsageError, match=r"--compilers: .*apache-tvm.*; leave it out, or add"):
        with_availability(jobs, usable, skip=False)


@pytest.mark.parametrize("there", [0, 1, 2])
def test_an_environment_must_have_the_device(monkeypatch: Patch, there: int) -> None:
    facts = {"torch": "2.15.0", "devices": {"cuda": there}}

    def resolved(asked: Sequence[EnvSpec], *_: object) -> Checked:
        return {Environment(name=e.name, python="p", asked=e.text, torch="2.15.0"): facts for e in asked}

    monkeypatch.setattr(prepare, "resolved", resolved)
    monkeypatch.setattr(probe, "usable_compilers", usable)
    asked = tuple(EnvSpec(name=name, text=f"{name}=p", python=Path("p")) for name in ("a", "b"))
    jobs = (make_job(device="cuda:1", candidates=("tvm",)),)
    if there == 2:
        (job,), told = prepare.prepared(asked, jobs, skip=True)
        assert [env.name for env in job.environments] == ["a", "b"]
        assert job.unavailable
        assert told == {"environments": {"a": facts, "b": facts}}
    else:
        says = rf"^--devices: a \(torch 2.15.0\) cannot use cuda:1: it finds {there} CUDA device"
        with pytest.raises(UsageError, match=says):
            prepare.prepared(asked, jobs, skip=True)


def test_a_worker_is_forked_for_the_jobs_device(monkeypatch: Patch, tmp_path: Path) -> None:
    starts: list[Any] = []

    class Run:
        def __init__(self, job: Job, launch: Callable[[Job], object], *_: object, **__: object) -> None:
            self.job, self.launch = job, launch

        def run(self) -> Iterator[Any]:
            self.launch(self.job)
            yield make_record(self.job)

    monkeypatch.setattr(launch, "JobRun", Run)
    monkeypatch.setattr(launch, "WorkerProcess", lambda start, *_: starts.append(start))
    job, pool = make_job(device="cuda:2"), SimpleNamespace()
    place = Place(logs={"": "x/log"})
    context = JobContext(candidates=job.candidates, place=place, reproduce=lambda *_: "")
    workers = launch.Workers(pool=cast("Any", pool))
    attempt = Attempt(job, job.candidates)
    assert len([*launch.measure(attempt, (), context, tmp_path / "log", workers)]) == 1
    (start,) = starts
    assert (start.pool, start.device, start.suite) == (pool, "cuda:2", job.case.suite)
