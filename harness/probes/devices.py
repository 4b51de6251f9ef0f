"""``python -m harness.probes.devices cuda:0``: the devices that torch cannot use, and why, as JSON."""

from __future__ import annotations

import json
import sys

from harness.devices import named

if __name__ == "__main__":
    print(json.dumps({device: why for device in sys.argv[1:] if (why := named(device).why_missing())}))
