"""The command and the environment variables with which a worker is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.worker.limits import GLIBC_SETTINGS, thread_variables
from runner.plan.environments.code_folder import code_folder
from runner.store.invocation import WORKER

HUB_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
HUB_ONLINE = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_ETAG_TIMEOUT": "10"}


NOT_OURS = ("PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
"""Variables with which a worker would use the packages of the parent's interpreter."""


def base_environment(current: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables for a worker in another environment."""
    return {name: value for name, value in current.items() if name not in NOT_OURS}


def worker_command(python: str = sys.executable) -> list[str]:
    return [python, "-u", "-m", WORKER]


def worker_environment(
    threads: int | None,
    base: Mapping[str, str] = os.environ,
    *,
    online: bool = False,
    malloc: Mapping[str, str] = GLIBC_SETTINGS,
    caches: Path | None = None,
) -> dict[str, str]:
    """The worker's environment variables: ``base``, this program's path, settings of malloc, threads.

    Unless ``online``, model libraries do not use the network. ``malloc``: variables of malloc, where ``base``
    does not set them. ``caches`` is the folder of torch's compile caches.
    """
    environment = {**malloc, **base}
    theirs = filter(None, base.get("PYTHONPATH", "").split(os.pathsep))  # a worker runs in another folder
    paths = (str(code_folder()), str(Path.cwd()), *map(os.path.abspath, theirs))
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update(HUB_ONLINE if online else HUB_OFFLINE)
    environment.update(thread_variables(threads))
    if caches is not None:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
        environment["TRITON_CACHE_DIR"] = str(caches / "triton")
    return environment
