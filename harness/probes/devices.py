"""``python -m harness.probes.devices cuda:0``: the devices that torch cannot use, and why, as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from harness.devices import named
from harness.probes.answering import answer


def missing(names: Iterable[str]) -> dict[str, str]:
    """Of these devices, those that torch cannot use -> the reason."""
    return {name: why for name in names if (why := named(name).why_unusable())}


if __name__ == "__main__":
    answer(lambda: missing(sys.argv[1:]))
