"""``python -m harness.probes.devices cuda:0``: why torch cannot use a device, or its name, as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from harness.devices import named
from harness.probes.answering import answer


def asked(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """``missing``: devices that torch cannot use -> the reason; ``models``: others -> the vendor's name."""
    devices = {name: named(name) for name in names}
    missing = {name: why for name, device in devices.items() if (why := device.why_unusable())}
    usable = ((name, device.model()) for name, device in devices.items() if name not in missing)
    return {"missing": missing, "models": {name: model for name, model in usable if model}}


if __name__ == "__main__":
    answer(lambda: asked(sys.argv[1:]))
