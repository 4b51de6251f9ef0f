"""Plants faults into compiled models and counts how many of them the check of parity finds.

    python benchmarks/faults.py                  # all models, precisions, kinds and sizes: hours on two cores
    python benchmarks/faults.py --minutes 30     # as many cells as fit, in a random order
    python benchmarks/faults.py --only MLP_addition --dtypes float32 --modes training

A backend of torch.compile lets every graph of AOTAutograd (forward and backward) pass some of its values
through a function, which can damage them. One graph is compiled for each model, mode and precision (a cell);
faults are planted into it one after another. Before them, the same graph runs without a fault.
``--untouched`` names real compilers that run beside it: what fails there is a false alarm. Every fault is
judged by our rule, with all of its checks, and by the published rule of PyTorch's harness on the first and
the third call. A fault that changes no bit of the results counts as not planted: a factor of 1.0001 in
bfloat16, an element that a mask hides, or a branch that is multiplied by zero.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import Outcome, models_parser, outcomes_of, why_of, words_of  # noqa: E402
from benchmarks.planted_faults import AROUND, KINDS, LATE_CALLS, SIZED, Fault, compile_with  # noqa: E402 - nothing is installed
from harness.backends import backend_names  # noqa: E402
from harness.failures import JobFailed  # noqa: E402
from harness.parity.calls import FirstCalls, first_calls  # noqa: E402
from harness.parity.checks import Checks  # noqa: E402
from harness.parity.field import judge_one, tolerance_of  # noqa: E402
from harness.parity.watch import LOOKS, Watch  # noqa: E402
from harness.program import Compiled  # noqa: E402
from harness.schema import DTYPES, Case, Job, Mode, Parity, Protocol, Status  # noqa: E402
from harness.tensors import Tensors  # noqa: E402
from harness.timing.step import Variant  # noqa: E402
from harness.worker.session import Session  # noqa: E402

MODELS = {
    "tiny_gpt": (
        *("MLP_addition", "MLP_shakespeare_16x64", "NanoGPT_addition", "HuggingFaceGPT_addition"),
        *("TLTransformer_shakespeare_64", "GPT_150k"),
    ),
    "huggingface": ("MobileBertForQuestionAnswering", "T5Small", "DistilBertForMaskedLM"),
    "timm_models": ("lcnet_050", "starnet_s1", "mobilenetv4_conv_small", "regnety_002"),
    "ops": ("matmul_xs", "attention_spelled_out"),
}
SIZES = (0.0001, 0.001, 0.005, 0.02, 0.1)


# -- cells ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted(Outcome):
    """One planted fault, or no fault (``kind`` is empty), and who found it."""

    kind: str = ""
    size: float = 0.0
    field: bool = False  # found by the published rule
    found_by: str = ""

    @property
    def ours(self) -> bool:
        """Whether our rule found it. A result that cannot be judged is not found."""
        return self.status not in (Status.PASS.value, Status.CANNOT_JUDGE.value)


def cell(
    case: Case,
    dtype: str,
    sizes: Sequence[float],
    kinds: Sequence[str],
    compilers: Sequence[str] = (),
    seconds: float = math.inf,
    seed: int = Protocol().seed,
) -> Iterator[Planted]:
    """All faults of one model, mode and precision, after a run without a fault; then real ``compilers``.

    All share eager, fp64 and the session. No fault is planted after ``seconds`` of processor time. The faults
    are in a random order, so those of a costly model are a fair sample.
    """
    torch._dynamo.reset()  # noqa: SLF001 - the graphs of the cell before
    protocol = Protocol(threads=1, performance=False, seed=seed)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=tuple(compilers), protocol=protocol)
    session = Session(job, lambda _: None)
    session.open()
    yield from _planted(session, sizes, kinds, random.Random(job.key), seconds)
    yield from (_untouched(session, name) for name in compilers)


def _planted(
    session: Session, sizes: Sequence[float], kinds: Sequence[str], order: random.Random, seconds: float
) -> Iterator[Planted]:
    if not kinds:
        return
    checks, bench = session._checks, session._bench  # noqa: SLF001 - a session compiles anew for each fault
    assert checks is not None
    variant, fault = bench.variant(), Fault()
    compiled = compile_with(fault)(variant.program)
    variant.use(compiled.forward)
    bench.step(variant)
    planned = [(kind, size) for kind in kinds for size in (sizes if kind in SIZED else (1.0,))]
    order.shuffle(planned)
    start = time.process_time()
    plain = ""
    for kind, size in [("", 0.0), *planned]:
        if kind and time.process_time() - start > seconds:
            return
        fault.plant(kind, size, variant)
        try:
            calls = first_calls(checks.bench, variant, [])
            if kind in SIZED and not fault.changed:
                continue
            bits = bits_of(calls.results[0], calls.results[-1])
            outcome = judged(checks, variant, compiled, calls)
            if kind in LATE_CALLS and not outcome.ours:
                later = watched(checks, variant, calls, outcome)
                if later is None:
                    continue
                outcome = later
            bits += bits_of(*calls.results)
            plain = plain or bits
            if kind and kind not in (*AROUND, *LATE_CALLS) and bits == plain and not outcome.ours:
                continue
        except Exception as error:  # a fault may make the model fail, and this is seen, too
            outcome = Planted(status=type(error).__name__, field=True)
        if fault.changed or not kind:
            yield replace(outcome, kind=kind, size=size)


def bits_of(*results: Tensors) -> str:
    """A digest of all tensors' bits."""
    digest = hashlib.sha256()
    for result in results:
        for name, tensor in result.items():
            digest.update(name.encode())
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def judged(checks: Checks, variant: Variant, compiled: Compiled, calls: FirstCalls) -> Planted:
    """The verdicts of both rules on a variant after its first calls."""
    truth = checks.truth
    mode = Mode.TRAINING if checks.bench.training else Mode.INFERENCE
    published = replace(truth, rule=replace(truth.rule, delta=tolerance_of(mode)))
    by_field = any(
        judge_one(published, name, results.get(name), 1)[1]
        for results in (calls.results[0], calls.results[-1])
        for name in {**truth.eager, **results}
    )
    status, parity, _ = checks.judge(variant, compiled, calls)
    return replace(_of(status, parity), field=by_field)


def watched(checks: Checks, variant: Variant, calls: FirstCalls, outcome: Planted) -> Planted | None:
    """The outcome after more calls, at which a session looks after the check; None if all calls agree."""
    watch, seen = Watch(), set[str]()
    watch.remember(variant, calls.results[0], checks)
    for _ in range(LOOKS):
        result = checks.bench.step(variant)
        watch.look(variant, result)
        seen.add(bits_of(checks.bench.results(variant, *result)))
    error = watch.changed_in_rounds(variant)
    if error is None:
        return outcome if len(seen) > 1 else None
    why = f"{error.name}: {error.failure}"
    return replace(outcome, status=Status.FAIL_ACCURACY.value, found_by="the rounds", why=why)


def _of(status: Status, parity: Parity | None) -> Planted:
    why, by, used = why_of(parity), parity.found_by if parity else "", parity.used if parity else None
    return Planted(status=status.value, found_by=by, why=why, used=None if why else used)


def _untouched(session: Session, name: str) -> Planted:
    """A real compiler as it is."""
    try:
        status, parity, *_ = session.prepare(name)
        outcome = _of(status, parity)
    except JobFailed as failed:
        outcome = Planted(status=failed.status.value, why=failed.failure.message[:300])
    return replace(outcome, kind=f"untouched {name}")


# -- tables -------------------------------------------------------------------------------------


def tables(outcomes: Sequence[Planted]) -> str:
    """Markdown: found / planted by kind, size and precision; our rule, then the published rule.

    Cells whose graph without a fault does not pass are left out: nothing is learned from them.
    """
    plain = [outcome for outcome in outcomes if not outcome.kind]
    unusable = {outcome.cell for outcome in plain if outcome.status != Status.PASS.value}
    planted = [outcome for outcome in outcomes if outcome.kind in KINDS and outcome.cell not in unusable]
    dtypes = sorted({outcome.dtype for outcome in planted}, key=DTYPES.index)
    rows = []
    for kind in KINDS:
        for size in sorted({outcome.size for outcome in planted if outcome.kind == kind}):
            here = [outcome for outcome in planted if (outcome.kind, outcome.size) == (kind, size)]
            rows.append((kind, f"{100 * size:g} %" if kind in SIZED else "", *_shares(here, dtypes)))
    rows.append(("all", "", *_shares(planted, dtypes)))
    headers = ["fault", "size", *(f"{dtype}{who}" for dtype in dtypes for who in ("", ", field"))]
    graph = "the graph without a fault"
    alarms = Counter((o.kind or graph, o.status) for o in outcomes if o.kind not in KINDS)
    alarms[graph, "fails by the field's rule"] = sum(outcome.field for outcome in plain)
    rest = [(kind, status, number) for (kind, status), number in sorted(alarms.items()) if number]
    cells = {outcome.cell for outcome in planted}
    last = f"{len(planted)} faults in {len(cells)} cells of {len({cell[0] for cell in cells})} models."
    if unusable:
        last += f" Left out: {', '.join(sorted(map(' '.join, unusable)))}."
    faults = tabulate(rows, headers=headers, tablefmt="github")
    return (
        f"{faults}\n\n{tabulate(rest, headers=('untouched', 'status', 'cells'), tablefmt='github')}\n\n{last}"
    )


def _shares(outcomes: Sequence[Planted], dtypes: Sequence[str]) -> Iterator[str]:
    for dtype in dtypes:
        here = [outcome for outcome in outcomes if outcome.dtype == dtype]
        for flags in ([outcome.ours for outcome in here], [outcome.field for outcome in here]):
            yield f"{sum(flags)} / {len(flags)}" if flags else "-"


def main(argv: Sequence[str] | None = None) -> None:
    parser = models_parser(__doc__, "float32,bfloat16,amp")
    parser.add_argument("--kinds", default=",".join(KINDS), type=words_of(KINDS))
    parser.add_argument("--sizes", default=SIZES, type=lambda text: [*map(float, text.split(","))])
    real = words_of(("", *backend_names()))
    none = "real compilers; none: an empty word"
    parser.add_argument("--untouched", default="aot_eager,inductor", type=real, help=none)
    after = "processor time after which a cell has no further fault"
    parser.add_argument("--seconds", type=float, default=math.inf, help=after)
    parser.add_argument("--seed", type=int, default=Protocol().seed, help="of weights and inputs")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)

    more = (options.sizes, options.kinds, options.untouched, options.seconds, options.seed)
    print(tables(outcomes_of(options, MODELS, Planted, lambda _, case, dtype: cell(case, dtype, *more))))


if __name__ == "__main__":
    main()
