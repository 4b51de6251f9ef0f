"""benchmark.hud.json: what the dashboards of PyTorch and vLLM read."""

import json
from typing import Any

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.reports import render_all
from tests.factories import HOSTILE_NAMES, known, make_job, make_record, synthetic_run


def hud(*records: Any) -> list[dict[str, Any]]:
    files = render_all(summarize(records), {"hud"})
    assert list(files) == ["benchmark.hud.json"]
    return list(json.loads(files["benchmark.hud.json"]))


def test_a_record_has_one_metric_with_all_of_its_samples() -> None:
    record = make_record(make_job("resnet18"), speedup=1.5)
    samples, found = known(record.samples), {one["metric"]["name"]: one for one in hud(record)}
    first = found["abs_latency"]
    facts = {"name": "torchduet", "mode": "training", "dtype": "float32"}
    assert {name: first["benchmark"][name] for name in facts} == facts
    model = {"name": "resnet18", "type": "OSS model", "backend": "inductor", "origins": ["toys"]}
    assert first["model"] == model
    assert first["metric"]["benchmark_values"] == [1e3 * s for s in samples.candidate_s]
    assert found["eager_latency"]["metric"]["benchmark_values"] == [1e3 * s for s in samples.baseline_s]
    speedup = found["speedup"]["metric"]
    assert len(speedup["benchmark_values"]) == 1
    assert speedup["extra_info"]["ci_low"] < speedup["benchmark_values"][0] < speedup["extra_info"]["ci_high"]
    assert found["accuracy"]["metric"]["benchmark_values"] == [1.0]


def test_a_failure_has_no_times_and_a_status() -> None:
    (only,) = hud(make_record(make_job(), status=Status.CRASH, speedup=None, metrics={}))
    metric = {"name": "accuracy", "unit": "", "benchmark_values": [0.0], "extra_info": {"status": "crash"}}
    assert only["metric"] == metric


def test_every_value_is_a_number_and_every_name_survives() -> None:
    run = synthetic_run()
    found = hud(*run)
    assert {one["model"]["name"] for one in found} == {record.job.case.name for record in run}
    assert all(isinstance(v, (int, float)) for one in found for v in one["metric"]["benchmark_values"])
    for name in HOSTILE_NAMES:
        assert hud(make_record(make_job(name)))[0]["model"]["name"] == name
