"""What a forked worker does first with its device, in this process: system calls are noted, not made."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import devices
from harness.worker import KIND, WHY_FRESH, host
from tests.accelerator import Accelerator, in_place_of_the_cpu


class Replaced(Exception):
    """The process would be another program now."""


class Served(Exception):
    """The worker would serve its pipes now."""


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In place of ``os``: notes what a worker does."""
    calls: list[tuple[Any, ...]] = []

    def note(name: str, result: Any = None) -> Any:
        def noted(*given: Any) -> Any:
            calls.append((name, *given))
            return result

        return noted

    def replace(path: str, command: list[str]) -> None:
        calls.append(("execv", *command[1:]))
        raise Replaced

    names = ("setsid", "dup2", "close", "chdir", "write", "set_inheritable")
    found = SimpleNamespace(
        **{name: note(name) for name in names},
        open=note("open", 9),
        fork=note("fork", 0),
        execv=replace,
        environ={},
        devnull=os.devnull,
        O_RDONLY=os.O_RDONLY,
        calls=calls,
    )
    monkeypatch.setattr(host, "os", found)
    monkeypatch.setattr(
        host, "signal", SimpleNamespace(signal=note("signal"), SIGINT=2, SIGTERM=15, SIG_DFL=0, SIG_IGN=1)
    )

    def serve(*pipes: int) -> None:
        calls.append(("run", *pipes))
        raise Served

    monkeypatch.setattr("harness.worker.main.run", serve)
    return found


@pytest.mark.parametrize("poisoned", [False, True])
def test_it_opens_the_device_and_is_replaced_if_it_cannot(
    system: SimpleNamespace, tmp_path: Path, *, poisoned: bool
) -> None:
    with in_place_of_the_cpu(Accelerator()) as machine:
        machine.opened_by = os.getpid() + 1 if poisoned else None
        with pytest.raises(Replaced if poisoned else Served):
            host._become_worker(tmp_path, [3, 4, 5, 6], "forked", devices.named("cpu"))
        assert poisoned or machine.opened_by == os.getpid()
    last = system.calls[-1]
    if poisoned:
        assert last == ("execv", "-u", "-m", "harness.worker", "--pipes", "3,4,5")
        assert system.environ[KIND] == "fresh"
        assert system.environ[WHY_FRESH].startswith(
            "a forked worker could not open cpu, so a new interpreter"
        )
        assert [one for one in system.calls if one[0] == "set_inheritable"] == [
            ("set_inheritable", pipe, True) for pipe in (3, 4, 5)
        ]
    else:
        assert last == ("run", 3, 4, 5)
        assert system.environ == {KIND: "forked"}


def test_a_new_interpreter_and_a_cpu_open_nothing_first(system: SimpleNamespace, tmp_path: Path) -> None:
    with in_place_of_the_cpu(Accelerator()) as machine:
        with pytest.raises(Served):
            host._become_worker(tmp_path, [3, 4, 5, 6], "fresh", devices.named("cpu"))
        assert machine.opened_by is None
    with pytest.raises(Served):
        host._become_worker(tmp_path, [3, 4, 5, 6], "forked", devices.named("cpu"))


@pytest.mark.parametrize("bare", [False, True])
def test_the_fork_gets_the_device_of_the_request(
    system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, *, bare: bool
) -> None:
    request = json.dumps({"spawn": "/run/x", "suite": "none", "device": "cuda:2"}).encode()
    received = SimpleNamespace(recv_fds=lambda *_: (request, [3, 4, 5, 6], 0, None), socket=None)
    monkeypatch.setattr(host, "socket", received)
    seen: list[Any] = []

    def become(*given: Any) -> None:
        seen.extend(given)
        raise Served

    monkeypatch.setattr(host, "_become_worker", become)
    runner: Any = SimpleNamespace(close=lambda: seen.append("closed"))
    with pytest.raises(Served):
        host._serve(runner, bare=bare)
    kind = "fresh" if bare else "forked"
    assert seen == ["closed", Path("/run/x"), [3, 4, 5, 6], kind, devices.named("cuda:2")]
