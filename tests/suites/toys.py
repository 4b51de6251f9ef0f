"""A suite of tiny well-behaved modules, for tests that need a real worker and little time."""

from __future__ import annotations

from harness.schema import Case, Setting
from harness.workload import Workload

NAMES = ("linear", "norm", "deep")


def cases(setting: Setting) -> tuple[Case, ...]:
    return tuple(
        Case(
            suite=__file__,
            name=name,
            mode=setting.mode,
            batch_size=64,
            published_batch_size=64,
            tags=("quick",) if name == "linear" else (),
        )
        for name in NAMES
    )


def build(case: Case) -> Workload:
    import torch
    from torch import nn

    blocks = {
        "linear": lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)),
        "norm": lambda: nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8)),
        "deep": lambda: nn.Sequential(*[nn.Linear(32, 32) for _ in range(8)]),
    }
    module = blocks[case.name]()
    return Workload(
        module=module,
        args=(torch.randn(case.batch_size or 1, 32),),
        target=torch.randint(0, 8, (case.batch_size or 1,)),
        loss=nn.functional.cross_entropy,
    )
