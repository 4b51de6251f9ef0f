"""Results that are compared are on one device, or the comparison says so. ``meta`` stands for a GPU."""

from pathlib import Path

import torch

from harness.parity.between import export, imported
from harness.parity.measure import sketch
from harness.schema import Case, Job, Protocol, Status
from harness.timing.workbench import Workbench
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import known, make_job
from tests.worker.planted import CPU, drawn, rule, silent, truth_of, workload

META = torch.device("meta")


def test_results_of_another_environment_come_to_the_device(tmp_path: Path) -> None:
    of = workload("mlp")
    truth = truth_of({"output": drawn(8)}, {"output": drawn(8), "mask": torch.ones(2, dtype=torch.bool)})
    export(tmp_path / "weights", of, truth)
    assert {tensor.device for tensor in (*truth.eager.values(), *known(truth.exact).values())} == {CPU}
    moved = known(imported(tmp_path / "weights", of)[0].truth(rule("field"), CPU))
    assert moved.eager["mask"].dtype == torch.bool


def test_a_sketch_of_a_large_tensor_stays_on_its_device() -> None:
    for size in (4, 1 << 17):
        kept = sketch("output", torch.ones(size, device=META))
        assert (kept.device, kept.numel()) == (META, size)


def job(dtype: str, baseline: str | None = None) -> Job:
    protocol = Protocol(min_sample_s=0.0, threads=1)
    return make_job(dtype=dtype, candidates=("eager",), protocol=protocol, baseline_dtype=baseline)


def test_a_model_that_turns_tf32_on_is_measured_without_and_reported() -> None:
    class Turning(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.backends.cuda.matmul.allow_tf32 = True
            return super().forward(x)

    def build(_: Case) -> Workload:
        torch.backends.cudnn.allow_tf32 = True
        return Workload(module=Turning(4, 4), args=(torch.ones(2, 4),), loss=lambda out, _: out.mean())

    ready = Session(job("float32"), silent, build)
    model, environment = ready.open()
    said = [remark for remark in model.remarks if "float32 products" in remark]
    assert [remark.partition("products ")[2] for remark in said] == [
        "while it is built: restored",
        "in its step, and again in each later step: restored",
    ]
    assert environment["cudnn_allow_tf32"] is False
    assert ready.prepare("eager")[0] is Status.PASS


def test_tf32_is_switched_in_steps_only_where_variants_differ() -> None:
    """A switch takes time that a tiny step shows, and its closure must not keep the variant alive."""
    switched = []
    for dtype, baseline in (("tf32", None), ("float32", None), ("tf32", "float32")):
        bench = Workbench(job(dtype, baseline), CPU, workload("mlp"))
        bench.settle()
        variants = [bench.variant(bench.baseline_precision), bench.variant()]
        switched.append({one.step.__name__ == "switched" for one in variants})
        seen = []
        for one in variants:
            one.step()
            seen.append(bool(torch.backends.cuda.matmul.allow_tf32))
        assert seen == [bench.baseline_precision.tf32, bench.precision.tf32]
    assert switched == [{False}, {False}, {True}]
    torch.backends.cuda.matmul.allow_tf32 = False
