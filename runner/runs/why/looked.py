"""What a second copy, compiled for looking, shows: its kernels, and a balance of eager and compiled in ms.

The copy has named kernels (``cpp.enable_kernel_profile``). It is never the copy that is timed.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from harness.backends.settings.candidates import parts_of
from harness.declared import finite
from harness.schema import Record

TRACE = "torch_trace"  # the folder of torch's own trace of the copy, in the job's
STEP = "step"  # the whole step among the events of harness.metrics.trace
LOOKING = (
    "cpp.enable_kernel_profile=True",
    "trace.provenance_tracking_level=1",
    "fx_graph_cache=False",  # a graph from the cache generates no code that could be read
    "functorch.enable_autograd_cache=False",
)
GENERATED = re.compile(r"(?:cpp|triton_\w{2,4})_fused")
LIBRARY = re.compile(
    r"aten::(?!_?upsample)\w*(?:mm|bmm|matmul|conv\w*|linear\w*|scaled_dot_product\w*|lstm\w*|gru\w*)(?:_backward)?$|mkldnn::|mkl::"
    r"|gemm|gemv|nvjet|cutlass|cudnn|convolve|flash_(?:fwd|bwd)|fmha"  # kernels of a GPU
)
RANDOM = re.compile(r"aten::(?:bernoulli_?|rand\w*|normal_?|uniform_?|native_dropout)$")
COPIES = re.compile(r"aten::(?:copy_|clone|contiguous|_to_copy|constant_pad_nd)$")
CALL = re.compile(r"TorchDynamo|Torch-Compiled|AOTDispatcher|Pregraph|## Call|CompiledFunction")
LINES = (
    *("library products and convolutions", "fused kernels", "copies into another order", "random numbers"),
    *("kernels that store masks", "other operators", "guards and wrapper", "autograd"),
)
REST = "not accounted"


Kernel = tuple[str, float, str, str]
"""A generated kernel: its name, its ms of a step, its signs, and the model's lines that it computes."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The look at one job. Times are ms of one step under the profiler, by event."""

    record: Record
    eager: Mapping[str, float] = field(default_factory=dict)
    compiled: Mapping[str, float] = field(default_factory=dict)
    signs: Mapping[str, frozenset[str]] = field(default_factory=dict)  # kernel -> random, mask, copy, scalar

    @classmethod
    def of(cls, record: Record) -> Looked:
        """From the record of the looking candidate. What it lacks is empty."""
        words = [line.split() for line in str(record.metrics.get("generated_kernels") or "").splitlines()]
        return cls(
            record=record,
            eager=_events(record, "baseline_step_events"),
            compiled=_events(record, "candidate_step_events"),
            signs={line[0]: frozenset(line[1:]) for line in words if line},
        )

    @property
    def kernel_rows(self) -> tuple[Kernel, ...]:
        """The generated kernels, the longest first."""
        text = str(self.record.metrics.get("kernel_lines") or "")
        lines = dict(line.partition(" ")[::2] for line in text.splitlines())
        rows = (
            (name, self.compiled.get(name, 0.0), ", ".join(sorted(signs)), lines.get(name, ""))
            for name, signs in self.signs.items()
        )
        return tuple(sorted((row for row in rows if row[1]), key=lambda row: -row[1]))

    @property
    def compiler(self) -> str:
        return parts_of(self.record.candidate)[0]

    @property
    def settings(self) -> tuple[str, ...]:
        """The candidate's own settings, without those for looking."""
        return tuple(option for option in parts_of(self.record.candidate)[1] if option not in LOOKING)

    @property
    def step_ms(self) -> float:
        """The compiled step as timed, without the profiler; with it, if it was not timed."""
        samples = self.record.samples
        timed = [] if samples is None else [seconds for seconds in samples.candidate_s if seconds]
        return statistics.median(timed) * 1e3 if timed else self.compiled.get(STEP, 0.0)

    @cached_property
    def balance(self) -> Mapping[str, tuple[float, float]]:
        """ms of eager and of the compiled step by line; the last line is what no event accounts for."""
        sums, sides = {line: [0.0, 0.0] for line in LINES}, (self.eager, self.compiled)
        for side, events in enumerate(sides):
            for name, ms in events.items():
                if name != STEP:
                    sums[self._line(name)][side] += ms
        known = [sum(both[side] for both in sums.values()) for side in (0, 1)]
        sums[REST] = [events.get(STEP, 0.0) - ms for events, ms in zip(sides, known, strict=True)]
        return {line: (eager, compiled) for line, (eager, compiled) in sums.items()}

    def _line(self, name: str) -> str:
        if GENERATED.match(name):
            signs = self.signs.get(name, frozenset())
            return LINES[
                next((n for n, sign in ((2, "copy"), (3, "random"), (4, "mask")) if sign in signs), 1)
            ]
        table = ((LIBRARY, 0), (RANDOM, 3), (COPIES, 2), (CALL, 6))
        known = next((n for pattern, n in table if pattern.search(name)), None)
        on_device = self.record.job.device != "cpu"  # there, every event is a kernel
        operator = on_device or re.match(r"(?!autograd::|torch::)\w+::\w", name)  # also of other libraries
        return LINES[known if known is not None else 5 if operator else 7]

    def kernels(self, sign: str) -> tuple[str, ...]:
        """The generated kernels with this sign."""
        return tuple(name for name, signs in self.signs.items() if sign in signs)

    def ms(self, pattern: str, *, compiled: bool = True) -> float:
        """ms of the events whose whole name matches."""
        events = self.compiled if compiled else self.eager
        return sum(ms for name, ms in events.items() if re.fullmatch(pattern, name))

    def ms_of(self, sign: str) -> float:
        """ms of the generated kernels with this sign."""
        return sum(self.compiled.get(name, 0.0) for name in self.kernels(sign))

    def number(self, name: str) -> float:
        """The metric of the looking copy; 0 without it."""
        return finite(self.record.metrics.get(name)) or 0.0


def _events(record: Record, name: str) -> dict[str, float]:
    values = json.loads(str(record.metrics.get(name) or "{}"))
    return {str(key): float(ms) for key, ms in values.items()}
