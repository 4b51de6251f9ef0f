"""``torch==2.11.0..2.13.0``: which package is followed, over which versions, beside which others."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from runner.errors import UsageError
from runner.labels import plain

FLAG = "--bisect"
EXAMPLE = "write torch==2.11.0..2.13.0, or torch==2.11.0,2.12.0,2.13.0"
FOLLOWED = re.compile(r"^(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<versions>[^\s=]+(\.\.|,)[^\s=]+)$")
PIP_TIMEOUT_S = 120.0
LONGEST_REASON = 200

Available = Callable[[str], Sequence[str]]
"""The versions that there are of a package. Raises ``UsageError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The package that is followed, its versions from the oldest on, and what else is installed."""

    package: str
    versions: tuple[str, ...]
    beside: tuple[str, ...] = ()

    def requirements(self, version: str) -> tuple[str, ...]:
        return (f"{self.package}=={version}", *self.beside)


def versions_asked(text: str, available: Available) -> Versions:
    """``UsageError`` for anything but one package with several versions, and torch beside another one."""
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
    # a build such as 2.13.0+cpu is what pip takes for 2.13.0 anyway
    there = {v: text for v, text in found.items() if v.local is None or Version(v.public) not in found}
    for text, version in ((first, low), (last, high)):
        if version not in there:
            near = ", ".join(str(v) for v in sorted(there, key=lambda v: _distance(v, version))[:3])
            hint = f"near it are {near}" if near else "there is none at all"
            raise UsageError(f"{FLAG}: pip finds no {package} {text}; {hint}")
    # between nightlies, nightlies; between releases, releases
    unfinished = low.is_prerelease or high.is_prerelease
    inside = [v for v in sorted(there) if low <= v <= high and (unfinished or not v.is_prerelease)]
    return tuple(there[version] for version in inside)


def _distance(one: Version, other: Version) -> tuple[int, ...]:
    """How far apart two versions are, part by part."""
    return tuple(abs(a - b) for a, b in zip(_parts(one), _parts(other), strict=True))


def _parts(version: Version) -> tuple[int, ...]:
    return version.major, version.minor, version.micro


def _ordered(versions: Sequence[str]) -> tuple[str, ...]:
    """In the order given, which must be from the oldest on."""
    known = [_version(text) for text in versions]
    for earlier, later in itertools.pairwise(known):
        if earlier >= later:
            raise UsageError(f"{FLAG}: {earlier} is not older than {later}; name each once, the oldest first")
    return tuple(versions)


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(f"{FLAG}: {text!r} is no version; {EXAMPLE}") from None


def pip_versions(package: str) -> tuple[str, ...]:
    """What ``pip index versions`` finds, with the person's own pip settings. ``UsageError`` for nothing."""
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
    reason = plain(errors[-1].removeprefix("ERROR:").strip())[:LONGEST_REASON]
    raise UsageError(f"{FLAG}: pip finds no versions of {package} ({reason}); list them instead")
