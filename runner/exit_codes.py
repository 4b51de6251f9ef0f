"""What programs of this project end with."""

from __future__ import annotations

OK = 0
FAILURES = 1
"""Something did not pass; all of it is recorded."""

BAD_INPUT = 2
"""One sentence has said what would be right; nothing was measured."""

INTERRUPTED = 130
FAILED_PIPE = 141
"""Whoever read the output has gone."""
