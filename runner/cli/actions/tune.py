"""``--tune``: the settings that matter on this device, as candidates. The work is that of ``--why``."""

from __future__ import annotations

from runner.cli.actions import why

FLAGS = (why.TUNE,)
parse, perform = why.parse, why.perform
