"""Exit codes of the programs of this project."""

from __future__ import annotations

OK = 0
FAILURES = 1  # a candidate did not pass (its record has the reason), or a gate of ``--fail-on`` failed
BAD_INPUT = 2  # a message on stderr says what is correct; nothing was measured. Or a gate has no data
OPEN = 3  # no gate failed, and of at least one the interval reaches across the limit
INTERRUPTED = 130
FAILED_PIPE = 141  # the reader of the output closed the pipe
