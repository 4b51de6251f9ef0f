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
from runner.labels import case_name, ran_batch
from runner.reports.parts.sections import sections
from suites import tiny_gpt
from tests.factories import comparison_of, compiled, finding, known, make_job, make_record, with_samples


# -- comparisons -----------------------------------------------------------------
@pytest.mark.parametrize("value", [None, True, "12", math.nan, math.inf])
def test_a_metric_that_is_no_number_is_missing(value: Scalar) -> None:
    comparison = comparison_of(make_record(make_job(), metrics={"compilation_latency_s": value}))
    assert comparison.compilation_latency_s is None
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


def test_limits_are_not_warned_about_just_inside_them() -> None:
    records = [
        make_record(make_job("a"), speedup=0.953, jitter=0.001),
        make_record(make_job("b"), speedup=1.1, compilation_s=119.0, memory_ratio=0.91),
    ]
    assert summarize(records).warnings == ()


def test_a_slow_model_is_sent_to_the_lines_that_break_its_graph_where_they_are_known() -> None:
    metrics: dict[str, Scalar] = {"graph_breaks": 3, "graph_break_reasons": "print (model.py:1)"}
    record = make_record(make_job(), speedup=0.8, metrics=metrics)
    assert "change the lines that break the graph." in finding([record], "Slower than eager").advice


@pytest.mark.parametrize(
    ("why", "advised"),
    [
        (": Dynamo does not support RNN, GRU, or LSTM", ["inductor[dynamo.allow_rnn=True]"]),
        (": the user's code calls torch.compiler.disable", []),
        ("", ["TORCH_LOGS"]),
    ],
)
def test_what_was_not_compiled_says_why_and_is_sent_to_no_empty_log(why: str, advised: list[str]) -> None:
    message = f"nothing of the model reached the compiler{why}"
    record = make_record(make_job(), status=Status.NOT_COMPILED)
    record = replace(record, failure=replace(known(record.failure), message=message))
    warning = finding([record], "Not compiled")
    assert warning.cases[0].endswith(message)
    words = ("inductor[dynamo.allow_rnn=True]", "TORCH_LOGS")
    assert [word for word in words if word in warning.advice] == advised


def test_a_control_that_moved_is_said_first_among_the_timings() -> None:
    job = make_job()
    summary = summarize([make_record(job, "eager", speedup=0.8), make_record(job, speedup=0.8)])
    control, slow = summary.warnings
    titles = (control.title, slow.title)
    assert titles == ("The A/A control moved", "Slower than eager (speedup below 0.95)")
    assert "speedup of eager over eager 0.80" in control.cases[0]
    assert len(slow.cases) == 1  # the control is not called a slow compiler as well


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


def test_eager_in_another_precision_than_its_baseline_is_no_control() -> None:
    job = replace(make_job(dtype="bfloat16"), baseline_dtype="float32")
    slow = make_record(job, candidate="eager", speedup=0.5)
    assert comparison_of(slow).compiler == "eager bfloat16"
    assert comparison_of(slow).break_even is None
    assert not any("Slower than eager" in warning.title for warning in summarize([slow]).warnings)
    same = replace(make_job(dtype="float32"), baseline_dtype="float32")
    assert comparison_of(make_record(same, candidate="eager")).compiler == "eager"


def test_jobs_without_an_fp64_run_are_counted() -> None:
    with_fp64, without = make_record(make_job("one")), make_record(make_job("two"))
    without = replace(without, parity=replace(known(without.parity), reference="eager"))
    (caveat,) = [c for c in summarize([with_fp64, without]).caveats if "fp64" in c]
    assert caveat.startswith("In 1 of 2 jobs there is no run in fp64 to compare with")
    assert not [c for c in summarize([with_fp64]).caveats if "no run in fp64" in c]


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
    assert totals == {
        "/a/models.py": 2,
        "/b/models.py": 1,
    }
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
    (comparison,) = summarize([record]).comparisons
    expected = "faster" if date or device == "cpu" else "faster (tau assumed)"
    assert verdict_text(comparison, counts=True) == expected
    assert f" {expected}, pass" in outcome(record)
