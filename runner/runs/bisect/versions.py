"""``torch==2.11.0..2.13.0 numpy<2``: an environment for each of these versions."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from packaging.version import InvalidVersion, Version

from runner.errors import UsageError
from runner.labels import reason
from runner.plan.environments.spec import EnvSpec, environments_asked

EXAMPLE = "write torch==2.11.0..2.13.0, or torch==2.11.0,2.12.0,2.13.0"
FOLLOWED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s=]+(?:\.\.|,)[^\s=]+)")
PIP_TIMEOUT_S = 120.0
AVAILABLE = "Available versions:"


def builds_asked(text: str, available: Callable[[str], Sequence[str]]) -> tuple[EnvSpec, ...]:
    """An environment for each version, from the oldest on: ``torch-2.11.0``. Raises ``UsageError``."""
    followed = FOLLOWED.findall(text)
    if len(followed) != 1:
        what = "names no versions to choose from" if not followed else "follows two packages"
        raise UsageError(f"--bisect: {text!r} {what}; {EXAMPLE}")
    ((package, listed),) = followed
    if package != "torch" and "torch==" not in text:
        raise UsageError(f"--bisect: {text!r} does not say which torch; add torch==VERSION inside the quotes")
    versions = [version for version in re.split(r"\.\.|,", listed) if version]
    try:
        known = [Version(version) for version in versions]
    except InvalidVersion as error:
        raise UsageError(f"--bisect: {error}; {EXAMPLE}") from None
    if len(known) < 2 or known != sorted(set(known)):
        raise UsageError(f"--bisect: {listed!r}: name two or more versions, each once, the oldest first")
    if ".." in listed:
        versions = _between(package, known[0], known[-1], available(package))
    environments = [f"{package}-{v}={text.replace(f'=={listed}', f'=={v}')}" for v in versions]
    return environments_asked(environments, None)


def _between(package: str, low: Version, high: Version, available: Sequence[str]) -> list[str]:
    """The available versions: between nightlies, nightlies; between releases, releases."""
    # pip accepts a build such as 2.13.0+cpu for 2.13.0
    known = dict.fromkeys(Version(version.public) for version in sorted(map(Version, available)))
    for end in (low, high):
        if end not in known:
            raise UsageError(f"--bisect: pip finds no {package} {end}; it finds {', '.join(available[:8])}")
    unfinished = low.is_prerelease or high.is_prerelease
    return [str(v) for v in known if low <= v <= high and (unfinished or not v.is_prerelease)]


def pip_versions(package: str) -> list[str]:
    """The versions of ``pip index versions``, with the user's pip settings. Raises ``UsageError``."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        why = reason((getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1])
        raise UsageError(f"--bisect: pip finds no versions of {package} ({why}); list them instead") from None
    listed = [line.partition(":")[2] for line in done.stdout.splitlines() if line.startswith(AVAILABLE)]
    return [version.strip() for line in listed for version in line.split(",")]
