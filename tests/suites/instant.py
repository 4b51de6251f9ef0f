"""A suite of names alone, for workers that only pretend (``tests/cli/instant.py``): nothing is ever built."""

from __future__ import annotations

from harness.schema import Case, Setting
from harness.workload import Workload

NAMES = ("one", "two", "three")
ON_REQUEST = ("slow", "hangs", "unlucky")  # what each does: tests/cli/instant.py


def cases(setting: Setting) -> tuple[Case, ...]:
    return tuple(
        Case(
            suite=__file__,
            name=name,
            mode=setting.mode,
            batch_size=4,
            published_batch_size=4,
            tags=("on_request",) if name in ON_REQUEST else (),
        )
        for name in (*NAMES, *ON_REQUEST)
    )


def build(case: Case) -> Workload:
    raise NotImplementedError(case.name)
