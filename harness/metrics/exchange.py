"""What the ranks of ``--ddp`` exchange in a step, as DistributedDataParallel reports it."""

from __future__ import annotations

from harness.declared import SIDES, Column, Metric
from harness.metrics import ByVariant, Ended

WHEN = "end"
METRICS = (
    Metric(
        "exchanged_bytes",
        "bytes",
        "gradients that a step averages over the processes of --ddp: what each of them puts in",
        sides=SIDES,
        columns=(Column("exchanged", "averaged\nbytes", side="candidate_"),),
    ),
)


def measure(ended: Ended) -> ByVariant:
    numbers: ByVariant = {}
    for name, variant in ended.variants.items():
        if (parallel := variant.program.parallel) is not None:
            told = parallel._get_ddp_logging_data()  # type: ignore[operator]  # noqa: SLF001 - no public one
            sizes = told.get("rebuilt_bucket_sizes") or told["bucket_sizes"]
            numbers[name] = {"exchanged_bytes": sum(map(int, sizes.split(",")))}
    return numbers
