"""What is installed on this machine."""

from __future__ import annotations

from importlib import metadata


def version_of(package: str) -> str | None:
    """The installed version from the package's metadata, without importing it; None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
