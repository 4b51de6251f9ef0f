"""What is said about records: numbers where there are any, honest denominators, findings with causes."""

import math
from dataclasses import replace

import pytest

from harness.schema import AS_FOUND, Compilation, Mode, ModelFacts, Record, Scalar, Setting, Status
from harness.timing.measure import placement
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.analysis.texts import verdict_text
from runner.cli.progress import outcome
from runner.names import case_name, ran_batch
from runner.reports.parts.sections import sections
from suites import tiny_gpt
from tests.factories import comparison_of, compiled, finding, known, make_job, make_record, with_samples


# -- comparisons -----------------------------------------------------------------
@pytest.mark.parametrize("value", [None, True, "12", math.nan, math.inf])
def test_a_metric_that_is_no_number_is_missing(value: Scalar) -> None:
    comparison = comparison_of(make_record(make_job(), metrics={"compilation_latency_s": value}))
    assert comparison.compile_s is None
    assert comparison.break_even is None


# -- summaries -------------------------------------------------------------------
def on(device: str, model: str | None, name: str = "model") -> Record:
    record = make_record(make_job(device=device, name=name))
    facts: dict[str, Scalar] = {"device": device, "device_name": model} if model else {}
    return replace(record, environment=facts)


@pytest.mark.parametrize(
    ("devices", "labels"),
    [
        ([("cuda:0", "L4")], ["cuda:0"]),
        ([("cuda:0", "L4"), ("cuda:1", "L4"), ("cpu", "Xeon")], ["cuda", "cuda", "cpu"]),
        ([("cuda:0", "L4"), ("cuda:1", "T4")], ["cuda (L4)", "cuda (T4)"]),
        # nodes of a cluster
        ([("cuda", "L4"), ("cuda", "T4"), ("cuda", "L4")], ["cuda (L4)", "cuda (T4)", "cuda (L4)"]),
        # a model that did not load says nothing of its device; others of that device do
        ([("cuda:0", "L4"), ("cuda:1", "L4"), ("cuda:1", None)], ["cuda", "cuda", "cuda"]),
        ([("cuda:0", "L4"), ("cuda:1", "T4"), ("cuda:1", None)], ["cuda (L4)", "cuda (T4)", "cuda (T4)"]),
        ([("cuda:0", "L4"), ("cuda:1", None)], ["cuda", "cuda:1"]),
        ([("cuda", None)], ["cuda"]),
    ],
)
def test_equal_devices_are_averaged(devices: list[tuple[str, str | None]], labels: list[str]) -> None:
    summary = summarize([on(device, model, f"m{place}") for place, (device, model) in enumerate(devices)])
    by_name = {c.record.job.case.name: c.device for c in summary.comparisons}
    assert [by_name[f"m{place}"] for place in range(len(devices))] == labels
    assert {g.place.device: g.total for g in summary.groups} == {
        label: labels.count(label) for label in labels
    }


# -- findings (what the synthetic run has is in its golden files) ----------------
@pytest.mark.parametrize("status", [status for status in Status if status.counted and not status.passed])
def test_every_failure_is_a_finding(status: Status) -> None:
    record = replace(make_record(make_job(), status=status), parity=None)
    assert len(summarize([record]).warnings) == 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_samples_that_are_no_times_are_a_finding_not_a_crash(bad: float) -> None:
    record = make_record(make_job())
    damaged = with_samples(record, candidate_s=(bad, *known(record.samples).candidate_s[1:]))
    later = tuple(Compilation(start=AS_FOUND, round=number) for number in range(3))
    several = with_samples(damaged, rounds_by_process=(5, 5, 5, 5))
    for measured in (damaged, replace(several, compilations=later)):
        assert comparison_of(measured).speedup is None
        assert "20 rounds" in finding([measured], "Samples that cannot be used").cases[0]


# -- caveats ---------------------------------------------------------------------
@pytest.mark.parametrize("scale", ["small", "tiny"])
def test_models_of_tiny_gpt_are_the_published_ones_at_every_scale(scale: str) -> None:
    offered = tiny_gpt.cases(Setting(mode=Mode.TRAINING, device_type="cpu", scale=scale))
    jobs = [replace(make_job(), case=case) for case in offered]
    summary = summarize([make_record(job) for job in jobs])
    assert not any("model is smaller" in caveat for caveat in summary.caveats)
    assert [case_name(case) for case in offered] == [case.name for case in offered]
    assert case_name(replace(offered[0], suite="other", tags=())) == f"{offered[0].name} ({scale})"
    mine = replace(offered[0], suite="mine.py", tags=(), published_batch_size=None)
    assert case_name(mine) == mine.name, "of a model of one's own, nothing larger is published"


def test_a_batch_that_only_the_model_knows_was_not_halved() -> None:
    facts = ModelFacts(parameters=1, parameter_bytes=4, input_shapes=("x: float32[4, 2]",), batch_size=4)
    for asked, halved in ((None, False), (4, False), (8, True)):
        record = replace(make_record(make_job(batch_size=asked)), model=facts)
        assert any("halved" in caveat for caveat in summarize([record]).caveats) == halved
        assert ran_batch(record) == 4


def test_functions_of_one_file_are_one_suite() -> None:
    specs = ("/a/models.py:gpt", "/a/models.py:cnn", "/b/models.py:gpt", "my.zoo:gpt", "toys")
    summary = summarize(
        [make_record(make_job(spec.rpartition(":")[2], suite=spec), machine=spec) for spec in specs]
    )
    suites = [(section.suite, len(section.comparisons)) for section in sections(summary)]
    assert [count for _, count in suites] == [2, 1, 1, 1]
    assert [name.partition("-")[0] for name, _ in suites] == ["models", "models", "my.zoo", "toys"]
    assert len({name for name, _ in suites}) == len(suites)
    totals = {group.place.suite: group.total for group in summary.groups[:2]}
    assert totals == {"/a/models.py": 2, "/b/models.py": 1}
    assert [len(section.groups) for section in sections(summary)] == [1, 1, 1, 1]


# -- prefill and decode, taken apart -----------------------------------------------------------
def generated(*, new_tokens: int = 5, whole: float = 1.0) -> Record:
    """Eager: prefill of 0.2 s and decode of 0.8 s in every round. The candidate halves the decode alone."""
    return with_samples(
        make_record(make_job(mode=Mode.GENERATE, batch_size=2, new_tokens=new_tokens), rounds=10),
        baseline_s=(whole,) * 10,
        candidate_s=(0.2 + (whole - 0.2) / 2,) * 10,
        baseline_prefill_s=(0.2,) * 10,
        candidate_prefill_s=(0.2,) * 10,
    )


def test_one_token_has_no_decode_and_other_modes_no_parts() -> None:
    generation = comparison_of(generated(new_tokens=1, whole=0.2001))  # the step copies its logits
    assert generation.own.keys() == {"step", "prefill"}
    assert columns()["baseline_tokens_per_s"].value(generation) is None
    assert comparison_of(make_record(make_job())).own.keys() == {"step"}


BOTH = ("inductor", "inductor_reduce_overhead", "torchscript")


@pytest.mark.parametrize(
    ("device", "candidates", "cold", "cases"),
    [
        *(("cuda", BOTH, False, 2), ("cpu", BOTH, False, 0), ("cuda", BOTH[1:], False, 0)),
        ("cuda", BOTH, True, 0),
    ],
)
def test_compile_order_is_named(device: str, candidates: tuple[str, ...], *, cold: bool, cases: int) -> None:
    """Processes come in twos, an order and its reverse: the finding has that of the first."""
    job = replace(make_job(), device=device, candidates=candidates)
    fresh = (compiled("cold", 3.0),) if cold else ()
    records = [replace(make_record(job, name), compilations=fresh) for name in candidates]
    orders = [
        [name for name in placement(("baseline", *candidates), again) if name in BOTH[:2]]
        for again in (job, replace(job, protocol=replace(job.protocol, process=1)))
    ]
    assert orders[0] == orders[1][::-1]
    title = "Seconds of compiling that depend on the order"
    named = [warning.cases for warning in summarize(records).warnings if warning.title == title]
    assert [len(texts) for texts in named] == ([cases] if cases else [])
    assert all("5.00 s" in text and ", ".join(orders[0]) in text for texts in named for text in texts)


@pytest.mark.parametrize(("device", "date"), [("cuda", ""), ("cuda", "2026-11-23"), ("cpu", "")])
def test_a_verdict_on_a_card_says_that_its_tau_is_assumed(device: str, date: str) -> None:
    record = replace(make_record(replace(make_job(), device=device), speedup=2.0), calibrated=date)
    summary = summarize([record])
    (comparison,) = summary.comparisons
    expected = "faster" if date or device == "cpu" else "faster (tau assumed)"
    assert verdict_text(comparison, counts=True) == expected
    assert f" {expected}, pass" in outcome(record)
    borrowed = [caveat for caveat in summary.caveats if "measured on a CPU" in caveat]
    assert len(borrowed) == ("assumed" in expected)


# -- faster than the hardware can be -----------------------------------------------
FLOPS: dict[str, Scalar] = {
    "flops_per_step": 1e9,  # 10 ms at the higher of the two peaks, as long as eager takes
    "data_sheet_peak_flop_per_s": 1e11,
    "measured_peak_flop_per_s": 8e10,
}


@pytest.mark.parametrize(
    ("speedup", "device", "changed", "told"),
    [
        (20.0, "cpu", {}, True),
        (3.0, "cpu", {}, False),  # Winograd's convolutions and a faster clock could
        (3.0, "cuda", {}, True),
        (2.0, "cuda", {}, False),
        (20.0, "cpu", {"measured_peak_flop_per_s": 8e11}, False),  # the data sheet is wrong
        *((20.0, "cpu", {name: None}, False) for name in FLOPS),
    ],
)
def test_a_step_under_the_bound_of_its_flops_is_a_finding(
    speedup: float, device: str, changed: dict[str, Scalar], told: bool
) -> None:
    record = make_record(make_job(device=device), speedup=speedup, metrics={**FLOPS, **changed})
    titles = [warning.title for warning in summarize([record]).warnings]
    assert ("Faster than the hardware can be" in titles) is told
    if told:
        (case,) = finding([record], "Faster than the hardware").cases
        assert "the candidate takes" in case
        assert "1 GFLOP need 10" in case
        assert case.endswith("ms at the peak of 0.1 TFLOP/s")
