"""``--why``: signatures propose, pairs decide. Planted causes and controls, as records."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.schema import STOPPED, Failure, Job, Mode, Record, Scalar, Status
from runner.cli.main import main
from runner.engine.experiments import attempted
from runner.errors import UsageError
from runner.plan.compilers import Usable
from runner.runs.why.asking import LOOK, TOGETHER, explained, next_of_tune, next_of_why, tuned, tuning, usable
from runner.runs.why.causes import Proposal, causes, proposals, settings_to_try
from runner.runs.why.explain import Why, acting, candidates_for, explain, share_of_loss, with_setting
from runner.runs.why.looked import LINES, LOOKING, REST, TRACE, Looked
from runner.runs.why.page import balance_png, hand_over, page
from runner.runs.why.words import BALANCE, as_json, cause_lines, markdown, show
from runner.store.joined import results_of
from tests.attempts import processes_of
from tests.factories import Capture, Patch, known, make_job, make_record, sampled, together

EAGER = {"step": 10.0, "aten::mm": 8.0}
COMPILED = {"step": 10.0, "aten::mm": 8.0, "cpp_fused_add_0": 1.0}


def look(
    kernels: str = "cpp_fused_add_0",
    *,
    eager: dict[str, float] | None = None,
    compiled: dict[str, float] | None = None,
    candidate: str = "inductor",
    mode: Mode = Mode.TRAINING,
    environment: dict[str, Scalar] | None = None,
    **metrics: Scalar,
) -> Looked:
    """The look at a step that has no cause, with these changes."""
    texts: dict[str, Scalar] = {
        "baseline_step_events": json.dumps(EAGER | (eager or {})),
        "candidate_step_events": json.dumps(COMPILED | (compiled or {})),
        "generated_kernels": kernels,
        "graph_breaks": 0,
        "candidate_peak_memory_bytes": 1_000,
        "baseline_peak_memory_bytes": 1_000,
    }
    record = make_record(make_job(mode=mode), candidate, metrics=texts | metrics)
    return Looked.of(replace(record, environment={"threads": 1, **(environment or {})}))


PLANTED: dict[str, Looked] = {
    "random numbers": look("cpp_fused_native_dropout_0 random", compiled={"cpp_fused_native_dropout_0": 1.0}),
    "memory format": look("cpp_fused_0 copy", eager={"aten::mkldnn_convolution": 2.0},
                          compiled={"aten::mkldnn_convolution": 2.0, "cpp_fused_0": 2.0, "step": 12.0}),
    "weights copied in every step": look("cpp_fused_0 copy", compiled={"cpp_fused_0": 1.0},
                                         eager={"aten::convolution": 1.0}, mode=Mode.INFERENCE),
    "stored masks": look(
        "cpp_fused_relu_threshold_backward_0 mask", compiled={"cpp_fused_relu_threshold_backward_0": 1.0}
    ),
    "a decomposed operator": look(eager={"aten::_softmax": 3.0}),
    "attention by another kernel": look(eager={"aten::_scaled_dot_product_flash_attention_for_cpu": 3.0}),
    "autotuning": look(candidate="inductor[max_autotune=True]"),
    "freezing": look(candidate="inductor[freezing=True]", mode=Mode.INFERENCE),
    "saved tensors": look(candidate_peak_memory_bytes=1_500),
    "threads": look(environment={"threads": 4}),
    "loops without vectors": look("cpp_fused_add_1 scalar", compiled={"cpp_fused_add_1": 5.0}),
    "graph breaks": look(graph_breaks=2),
    "guards": look(guards=5_000, candidate_guards_us=500.0, candidate_guards_us_low=400.0),
    "nothing to gain": look(eager={"aten::mm": 9.9}, compiled={"aten::mm": 9.8}),
    "wrapper of the call": look(compiled={"CompiledFunction": 1.5, "step": 11.0}),
}  # fmt: skip
BESIDE = {"weights copied in every step": {"memory format"}}  # two effects of one copy


def test_every_cause_is_planted_here() -> None:
    assert set(PLANTED) == {cause.NAME for cause in causes()}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_shows_and_no_other(name: str) -> None:
    shown = {proposal.cause for proposal in proposals(PLANTED[name])}
    assert name in shown
    assert shown - {name} <= BESIDE.get(name, set())


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
def test_a_step_without_a_cause_shows_none(mode: Mode) -> None:
    assert proposals(look(mode=mode)) == ()


def test_a_long_kernel_beside_convolutions_may_have_the_wrong_memory_format() -> None:
    """dm_nfnet_f0: a kernel over the weights takes 15 % of the step, the convolutions as long as in eager."""
    own = {"cpp_fused_mul_0": 2.0, "step": 12.0}
    convolution = {"aten::mkldnn_convolution": 2.0}
    beside = look("cpp_fused_mul_0", eager=convolution, compiled=own | convolution)
    assert [proposal.settings[0] for proposal in proposals(beside)] == ["layout_optimization=False"]
    assert proposals(look("cpp_fused_mul_0", compiled=own)) == ()


# -- the pair decides ------------------------------------------------------------------------------
def run(ms: dict[str, float], **more: Any) -> list[Record]:
    """Records of one job with these times. Eager: 10 ms."""
    return together("model", {name: time / 1e3 for name, time in ms.items()}, eager_s=0.01, **more)


RANDOM = proposals(PLANTED["random numbers"])
REMOVED = "inductor[fallback_random=True]"
TWO = (*RANDOM, *proposals(PLANTED["stored masks"]))
BOTH = with_setting("inductor", f"{RANDOM[0].settings[0]},{TWO[1].settings[0]}")
TIMES_OF_TWO = {REMOVED: 12.0, with_setting("inductor", TWO[1].settings[0]): 11.5, "inductor": 13.0}


def why(removed_ms: float, plain_ms: float = 13.0, **more: Any) -> Why:
    times = {REMOVED: removed_ms, "inductor": plain_ms, "aot_eager": 10.0, "dynamo_eager": 10.0}
    return explain("inductor", run(times, **more), RANDOM, PLANTED["random numbers"])


@pytest.mark.parametrize("seed", sampled(4, range(20)))
def test_a_setting_that_changes_nothing_explains_nothing(seed: int) -> None:
    explanation = why(13.0, seed=seed)
    assert explanation.lost
    assert explanation.explained == ()


def test_a_share_needs_a_loss_and_rounds() -> None:
    first, other = (record.samples for record in run({"inductor": 10.0, "aot_eager": 10.0}))
    assert share_of_loss(first, other) is None
    assert share_of_loss(first, None) is None
    with pytest.raises(ValueError, match="inductor has no times"):
        explain("inductor", [], (), None)


def explanations() -> dict[str, Why]:
    """By what is special about them."""
    decided = {"explained": why(10.0), "half of it": why(11.4), "slower with the setting": why(15.0)}
    decided["wrong with the setting"] = why(10.0, failed=(REMOVED,))
    decided["no loss"] = why(9.0, plain_ms=9.9)
    stages = {"inductor": 13.5, "aot_eager_decomp_partition": 21.7, "aot_eager": 10.2, "dynamo_eager": 10.0}
    decided["rexnet_100: a slow stage in the middle is no cause"] = explain("inductor", run(stages), (), None)
    small = look("cpp_fused_native_dropout_0 random", compiled={"cpp_fused_native_dropout_0": 0.05})
    times = {REMOVED: 9.0, "inductor": 13.0, "aot_eager": 10.0, "dynamo_eager": 10.0}
    helps = explain("inductor", run(times), proposals(small), small)
    decided["selecsls42b: a setting helps, and its cause takes too little"] = helps
    failed = Looked.of(make_record(make_job(), "inductor", status=Status.FAIL_TO_RUN))
    unseen = explain("inductor", run({"inductor": 13.0, "aot_eager": 10.0}), proposals(failed), failed)
    decided["a failed look"] = unseen
    captured = run({"inductor": 13, "aot_eager": 13, "dynamo_eager": 13})
    decided["a slow capture is a cause"] = explain("inductor", captured, (), None)
    alone = explain("inductor", run(TIMES_OF_TWO), TWO, None)
    known_together = explain("inductor", run({BOTH: 10.5, "inductor": 13.0}), [known(acting(alone))], None)
    decided["two causes, tested together once"] = replace(
        alone, together=known_together.causes[0], attempts=(*alone.attempts, *known_together.attempts)
    )
    much, little = ({LINES[0]: (9.0, eager), REST: (0.5, rest)} for eager, rest in ((8.0, 2.0), (9.0, 0.5)))
    decided["the balance lacks much"] = replace(why(10.0), balance=much)
    decided["the balance lacks little"] = replace(why(10.0), balance=little)
    return decided


# -- names, plans, words ---------------------------------------------------------------------------
def test_a_setting_replaces_the_candidates_own() -> None:
    assert with_setting("inductor[freezing=True,cpp.threads=1]", "freezing=False") == (
        "inductor[cpp.threads=1,freezing=False]"
    )
    assert candidates_for("inductor", ["a=1"]) == ("inductor[a=1]", "inductor", "aot_eager", "dynamo_eager")
    assert candidates_for("aot_eager", []) == ("aot_eager", "dynamo_eager")


def test_each_cause_gets_a_try_before_any_gets_a_second() -> None:
    both = [
        Proposal(cause="a", sentence="", evidence="", settings=("x=1", "x=2", "x=3")),
        Proposal(cause="b", sentence="", evidence="", settings=("y=1",)),
    ]
    assert settings_to_try(both) == ("x=1", "y=1", "x=2")


def test_the_balance_adds_up_and_prints_what_it_lacks() -> None:
    balance = PLANTED["memory format"].balance
    assert tuple(balance) == (*LINES, REST)
    assert sum(compiled for _, compiled in balance.values()) == pytest.approx(12.0)
    assert balance["copies into another order"] == (0.0, 2.0)
    assert balance[REST] == pytest.approx((0.0, -1.0))
    explanation = replace(why(10.0), balance=balance)
    assert BALANCE.tables(explanation)[0].rows[-1][0] == "step"


def test_the_screen_the_page_and_the_file_say_the_same() -> None:
    explanation = why(10.0)
    screen = StringIO()
    show(explanation, Console(file=screen, width=200))
    for text in (screen.getvalue(), markdown([explanation])):
        assert "Explained: random numbers." in text
        assert "What to try" in text
        assert "fallback_random=True" in text
    (entry,) = json.loads(json.dumps(as_json([explanation])))["explanations"]
    assert entry["causes"][0]["state"] == "explained"
    assert entry["tried"][0]["helps"] is True
    assert entry["verdict"] == "slower"


def test_the_page_has_the_models_by_cause_and_pictures_of_their_balances() -> None:
    explanation = replace(why(10.0), balance=PLANTED["memory format"].balance)
    picture = balance_png(explanation)
    assert known(picture).startswith(b"\x89PNG")
    record = explanation.plain.record
    other = replace(explanation.plain, record=replace(record, job=make_job("<b>")))
    text = page(
        [explanation, replace(explanation, title="<b>", plain=other)], {record.job.key: known(picture)}
    ).decode()
    assert "All models, by cause" in text
    assert "&lt;b&gt;" in text
    assert text.count("data:image/png;base64,") == 1
    assert balance_png(replace(explanation, balance={})) is None


def test_tuning_keeps_what_wins_with_parity() -> None:
    settings = tuning(JOB)
    times = {with_setting("inductor", setting): 13.0 for setting in settings} | {"inductor": 13.0}
    times |= {with_setting("inductor", settings[0]): 8.0, with_setting("inductor", settings[1]): 9.0}
    explanation = tuned(JOB, run(times, failed=(with_setting("inductor", settings[0]),)), print)
    assert (known(explanation.winner).setting, explanation.causes) == (settings[1], ())
    assert not any("setting" in excluded for excluded in explanation.excluded)
    assert cause_lines(explanation) == ("Not explained: settings were tested, not causes.",)
    inference = make_job(mode=Mode.INFERENCE, candidates=("inductor",))
    assert "freezing=True" in tuning(inference)
    others = (make_job(mode=mode, candidates=("aot_eager",)) for mode in (Mode.TRAINING, Mode.INFERENCE))
    assert tuning(next(others)) == ("functorch.activation_memory_budget=0.5",)
    with pytest.raises(UsageError, match="--tune: aot_eager takes none of the settings that matter"):
        tuning(next(others))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ampere_sgemm_128x64_tn", "library products and convolutions"),
        ("void cutlass::Kernel2<cutlass_80_tensorop>", "library products and convolutions"),
        ("void at::native::vectorized_elementwise_kernel<4>", "other operators"),
        ("triton_poi_fused_add_0", "fused kernels"),
    ],
)
def test_on_a_gpu_every_event_is_a_kernel_and_threads_are_no_cause(name: str, line: str) -> None:
    record = look("triton_poi_fused_add_0", compiled={name: 3.0}, environment={"threads": 4}).record
    looked = Looked.of(replace(record, job=replace(record.job, device="cuda:0")))
    assert looked.balance[line][1] >= 3.0
    assert looked.balance["autograd"] == (0.0, 0.0)
    assert "threads" not in {proposal.cause for proposal in proposals(looked)}


def test_a_look_without_a_trace_of_eager_is_no_error() -> None:
    assert proposals(replace(PLANTED["a decomposed operator"], eager={})) is not None


JOB = make_job(candidates=("inductor",))


def of_two(together_ms: float = 10.5) -> Callable[[Job, Path | None], Iterator[Record]]:
    """Workers for a step with two causes: the look, the pairs, and what is without both."""

    def measure(job: Job, _: Path | None) -> Iterator[Record]:
        if any("enable_kernel_profile" in name for name in job.candidates):
            yield replace(PLANTED["random numbers"].record, candidate=job.candidates[0])
            return
        times = TIMES_OF_TWO | {BOTH: together_ms, "aot_eager": 10.0, "dynamo_eager": 10.0}
        yield from run({name: times[name] for name in job.candidates})

    return measure


@pytest.fixture
def two(monkeypatch: Patch) -> None:
    monkeypatch.setattr("runner.runs.why.asking.proposals", lambda _: TWO)
    monkeypatch.setattr("runner.runs.why.explain.RESAMPLES", 100)  # these tests explain many times


def parts_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(record.experiment, record.candidate) for record in records]


@pytest.mark.usefixtures("two")
def test_a_run_that_is_killed_after_any_record_goes_on_and_says_the_same(tmp_path: Path) -> None:
    whole = processes_of(JOB, of_two(), tmp_path, policy=next_of_why)
    pairs = [("", name) for name in (*TIMES_OF_TWO, "aot_eager", "dynamo_eager")]
    look = with_setting("inductor", ",".join(LOOKING))
    assert parts_of(whole) == [(LOOK, look), *pairs, (TOGETHER, BOTH), (TOGETHER, "inductor")]
    said = explained(JOB, whole)
    assert known(said.together).explained
    for number in range(len(whole)):
        again = processes_of(JOB, of_two(), tmp_path, before=whole[:number], policy=next_of_why)
        assert parts_of(again) == parts_of(whole)
        assert explained(JOB, again) == said
    assert {record.candidate for record in results_of(whole)} == {name for _, name in pairs}
    assert all(record.compilations == () for record in results_of(whole))


@pytest.mark.usefixtures("two")
def test_what_ctrl_c_cut_short_is_measured_again(tmp_path: Path) -> None:
    whole = processes_of(JOB, of_two(), tmp_path, policy=next_of_why)
    for number in range(len(whole)):
        cut = [*whole[:number], replace(whole[number], rounds_ended=STOPPED)]
        again = processes_of(JOB, of_two(), tmp_path, before=cut, policy=next_of_why)
        assert parts_of(again)[number + 1 :] == parts_of(whole)[number:]


@pytest.mark.usefixtures("two")
def test_the_trace_of_the_look_is_the_workers_own(tmp_path: Path) -> None:
    attempt = known(next_of_why(JOB, []))
    assert attempt.folders == {"TORCH_TRACE": TRACE}
    (record,) = attempted(attempt, [], lambda job, *_: of_two()(job, None), tmp_path)
    assert known(next_of_why(JOB, [record])).folders == {}
    lost = attempt.lost("inductor", Failure(kind="", message="", phase="runner"), "")
    assert (lost.experiment, lost.start) == (LOOK, "")


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("slower", [False, True])
def test_without_faster_times_together_the_causes_stand_alone(tmp_path: Path, slower: bool) -> None:
    records = processes_of(JOB, of_two(15.0), tmp_path, policy=next_of_why)
    if not slower:
        records = [replace(r, samples=None) if r.experiment == TOGETHER else r for r in records]
    said: list[str] = []
    explanation = explained(JOB, records, said.append)
    assert explanation.together is None
    assert (len(explanation.explained), len(explanation.attempts)) == (2, 2 + slower)
    assert slower or "together, " in said[-1]


def test_a_setting_that_cannot_be_used_here_is_skipped_and_asked_for_once() -> None:
    asked: list[Sequence[str]] = []

    def ask(_: str, names: Sequence[str]) -> dict[str, Usable]:
        asked.append(names)
        return {name: Usable(what="", why_not="torch is too old" * ("d" in name), modes=()) for name in names}

    policy = usable(next_of_tune, ask)
    jobs = [known(policy(JOB, [])).job for _ in range(2)]
    assert jobs[0] == jobs[1]
    assert set(jobs[0].unavailable) == {name for name in asked[0] if "d" in name}
    assert len(asked) == 1


def test_a_missing_compiler_is_refused_without_a_refused_flag(monkeypatch: Patch, capsys: Capture) -> None:
    missing = Usable(what="", why_not="tvm is not installed", modes=())
    monkeypatch.setattr("runner.plan.probe.asking_for", lambda _: lambda *_: {"tvm": missing})
    for action in ("--why", "--tune"):
        assert main([action, "--inference", "--suites=tiny_gpt", "-dcpu", "--compilers=tvm"]) == 2
        said = capsys.readouterr().err
        assert said.endswith(
            "--compilers: tvm cannot be used here: tvm is not installed; name another compiler\n"
        )


LOG = """V1124 08:52:48.197000 25015 torch/_inductor/compile_fx.py:1315] {"artifact": {"name": "fx_graph_runnable"}, "x": 0}
\t
\timport os
\tos.environ['TORCH_TRACE'] = '/tmp/trace'
\timport torch
V1124 08:52:55.179000 25015 torch/_inductor/graph.py:2745] {"inductor_output_code": {"filename": "/tmp/a.py"}}
\t# AOT ID: ['0_forward']
V1124 08:52:56.000000 25015 torch/a.py:1] {"compilation_metrics": {}}
"""  # noqa: E501 - a line of the log


def test_graphs_kernels_and_the_text_of_an_issue_are_handed_over(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / TRACE).mkdir(parents=True)
    (folder / TRACE / "dedicated_log.log").write_text(LOG)
    hand_over(folder, why(10.0))
    assert (folder / "graph-0.py").read_text() == "\nimport os\nimport torch\n"
    assert (folder / "kernels-0.py").read_text() == "# AOT ID: ['0_forward']\n"
    text = (folder / "issue.md").read_text()
    assert "Explained: random numbers." in text
    assert "To repeat the measurement: `python" in text
    assert sorted(path.name for path in folder.iterdir()) == ["graph-0.py", "issue.md", "kernels-0.py", TRACE]
