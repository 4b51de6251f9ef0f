"""Whether a row of the outputs depends on its batch (``--batch-invariant``): ``harness.numerics.batches``."""

from __future__ import annotations

from harness.metrics import declared_beside

WHEN = "last"
METRICS = declared_beside(__file__)
