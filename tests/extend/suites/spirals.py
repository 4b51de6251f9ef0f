"""A small network classifies points of two spirals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.schema import Case, Mode, Setting

if TYPE_CHECKING:
    from harness.workload import Workload

WIDTHS = {"narrow": 16, "wide": 256}


def cases(setting: Setting) -> tuple[Case, ...]:
    if setting.mode is Mode.GENERATE:
        return ()
    batch = 4096 if setting.scale == "full" else 64
    return tuple(
        Case(
            suite="spirals",
            name=name,
            mode=setting.mode,
            scale=setting.scale,
            batch_size=batch,
            published_batch_size=4096,  # of the source
            tags=("published_model", *(["quick"] if name == "narrow" else [])),  # --quick selects narrow
        )
        for name in WIDTHS
    )


def build(case: Case) -> Workload:
    import torch

    from harness.workload import Workload

    assert case.batch_size is not None
    width = WIDTHS[case.name]
    module = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.GELU(), torch.nn.Linear(width, 2))
    return Workload(
        module=module,
        args=(torch.randn(case.batch_size, 2),),
        target=torch.randint(0, 2, (case.batch_size,)),
        loss=torch.nn.functional.cross_entropy,
    )
