"""Questions for a worker's interpreter that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.plan import probe


def interpreter(path: Path, answer: str) -> str:
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_is_slow_is_not_called_one_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PROBE_TIMEOUT_S", 0.2)
    python = interpreter(tmp_path / "python", "exec sleep 60")
    with pytest.raises(UsageError, match=r"/python did not answer in 0\.2 s; try again") as raised:
        probe.usable_compilers("cpu", python=python)
    assert "install" not in str(raised.value)


def test_an_interpreter_without_torch_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torch cannot be imported here; install it"):
        probe.usable_compilers("cpu", python=interpreter(tmp_path / "python", "exit 1"))
