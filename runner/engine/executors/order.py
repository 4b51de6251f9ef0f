"""The order in which the jobs of a run begin, by their expected times.

Short jobs begin first, so that results come early. With ``--prepare-ahead``, the jobs that are open at once
wait for each other: they are a wave (``executors.gate``). The jobs, sorted by expected time, are cut into
waves. So the jobs of a wave take about equally long, and few lanes wait for its last job. Within a wave, the
longest job begins first. The first wave may be smaller than the others; the last, with the longest jobs, is
full. (This is longest processing time first, Graham 1969, with the waves in reverse.)

The plan, its partitions and the tables keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.engine.executors import Work


def ordered(work: Sequence[Work], at_once: int = 1) -> tuple[list[Work], int]:
    """The jobs in the order in which they begin, and how many of them are the first wave.

    ``at_once``: how many jobs are open at once. Without expected times, the order is that of ``work``.
    """
    if len({one.expected_s for one in work}) < 2:
        return list(work), at_once
    shortest_first = sorted(work, key=lambda one: one.expected_s)
    first = (len(work) - 1) % at_once + 1
    starts = [0, *range(first, len(work), at_once)]
    waves = [shortest_first[begin:end] for begin, end in zip(starts, [*starts[1:], len(work)], strict=True)]
    return [one for wave in waves for one in sorted(wave, key=lambda one: -one.expected_s)], first


def weights(work: Sequence[Work]) -> dict[str, float]:
    """The expected time of each job, by its key, over the mean; 1 without expected times."""
    total = sum(one.expected_s for one in work)
    if total <= 0:
        return {one.job.key: 1.0 for one in work}
    return {one.job.key: one.expected_s * len(work) / total for one in work}
