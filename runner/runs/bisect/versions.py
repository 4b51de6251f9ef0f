"""``torch==2.11.0..2.13.0``: the package, its versions, and the other packages to install."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from runner.errors import UsageError
from runner.labels import reason

FLAG = "--bisect"
EXAMPLE = "write torch==2.11.0..2.13.0, or torch==2.11.0,2.12.0,2.13.0"
FOLLOWED = re.compile(r"^(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<versions>[^\s=]+(\.\.|,)[^\s=]+)$")
PIP_TIMEOUT_S = 120.0

Available = Callable[[str], Sequence[str]]
"""The available versions of a package. Raises ``UsageError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The package, its versions from the oldest on, and the other packages to install."""

    package: str
    versions: tuple[str, ...]
    beside: tuple[str, ...] = ()

    def requirements(self, version: str) -> tuple[str, ...]:
        return (f"{self.package}=={version}", *self.beside)


def versions_asked(text: str, available: Available) -> Versions:
    """Needs one package with several versions, and a torch version for other packages. ``UsageError``."""
    words = text.split()
    followed = [found for word in words if (found := FOLLOWED.match(word))]
    if len(followed) != 1:
        what = "names no versions to choose from" if not followed else "follows two packages"
        raise UsageError(f"{FLAG}: {text!r} {what}; {EXAMPLE}")
    package, listed = followed[0]["package"], followed[0]["versions"]
    beside = tuple(word for word in words if word != followed[0][0])
    if package != "torch" and not any(word.startswith("torch==") for word in beside):
        raise UsageError(f"{FLAG}: {text!r} does not say which torch; add torch==VERSION inside the quotes")
    if ".." in listed:
        first, _, last = listed.partition("..")
        versions = _between(package, first, last, available)
    else:
        versions = _ordered([version for version in listed.split(",") if version])
    if len(versions) < 2:
        raise UsageError(f"{FLAG}: {text!r} leaves one version; {EXAMPLE}")
    return Versions(package=package, versions=versions, beside=beside)


def _between(package: str, first: str, last: str, available: Available) -> tuple[str, ...]:
    low, high = (_version(text) for text in (first, last))
    if low >= high:
        raise UsageError(f"{FLAG}: {first} is not older than {last}; name the older version first")
    found = {_version(text): text for text in available(package)}
    # pip also accepts a build such as 2.13.0+cpu for 2.13.0
    there = {v: text for v, text in found.items() if v.local is None or Version(v.public) not in found}
    for text, version in ((first, low), (last, high)):
        if version not in there:
            near = ", ".join(str(v) for v in sorted(there, key=lambda v: _distance(v, version))[:3])
            hint = f"the nearest are {near}" if near else "it finds no version"
            raise UsageError(f"{FLAG}: pip finds no {package} {text}; {hint}")
    # between nightlies, nightlies; between releases, releases
    unfinished = low.is_prerelease or high.is_prerelease
    inside = [v for v in sorted(there) if low <= v <= high and (unfinished or not v.is_prerelease)]
    return tuple(there[version] for version in inside)


def _distance(one: Version, other: Version) -> tuple[int, ...]:
    """The distance between two versions, part by part."""
    return tuple(abs(a - b) for a, b in zip(_parts(one), _parts(other), strict=True))


def _parts(version: Version) -> tuple[int, ...]:
    return version.major, version.minor, version.micro


def _ordered(versions: Sequence[str]) -> tuple[str, ...]:
    """The versions in the given order, which must start with the oldest."""
    known = [_version(text) for text in versions]
    for earlier, later in itertools.pairwise(known):
        if earlier >= later:
            raise UsageError(f"{FLAG}: {earlier} is not older than {later}; name each once, the oldest first")
    return tuple(versions)


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(f"{FLAG}: {text!r} is not a version; {EXAMPLE}") from None


def pip_versions(package: str) -> tuple[str, ...]:
    """The versions of ``pip index versions``, with the user's pip settings. Raises ``UsageError``."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{FLAG}: pip did not say which versions of {package} there are; list them"
        ) from None
    for line in done.stdout.splitlines():
        if line.startswith("Available versions:"):
            return tuple(version.strip() for version in line.partition(":")[2].split(",") if version.strip())
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["it said nothing"]
    why = reason(errors[-1].removeprefix("ERROR:").strip())
    raise UsageError(f"{FLAG}: pip finds no versions of {package} ({why}); list them instead")
