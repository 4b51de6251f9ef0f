"""What reports say of small runs, each about one matter, held against ``tests/data/golden/scenes``.

``UPDATE_GOLDEN=1 pytest tests/unit/test_scenes.py`` writes the files anew; read the difference.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import (
    COLD,
    EAGER_START,
    SIZES,
    Compilation,
    CompilerOptions,
    Extras,
    Failure,
    Protocol,
    Record,
    Scalar,
    Status,
    Where,
)
from runner.analysis.derive import summarize
from runner.plan.sweep import points
from runner.reports import markdown
from runner.runs.compare.gates import gate_results, gates_asked
from runner.runs.compare.views import render_markdown
from runner.runs.why.explain import Why
from runner.runs.why.words import markdown as markdown_of_why
from runner.runs.why.words import overview_text
from tests import oracle
from tests.factories import compiled, known, make_job, make_parity, make_record, with_samples
from tests.unit import test_changes_paired as paired
from tests.unit import test_environments_compare as environments
from tests.unit.test_changes import MODELS, compared, measured
from tests.unit.test_compiling import runs
from tests.unit.test_start_up import raced, steps
from tests.unit.test_sweep import swept
from tests.unit.test_why_causes import explanations

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "scenes"
TABLES = ("curves", "start_forms", "shape_forms", "compile_starts", "environments", "environment_averages")


def parity() -> Iterator[Record]:
    """How fine a pass was, and what a failure says."""

    def judged(name: str, status: Status = Status.PASS, **numbers: Any) -> Record:
        return replace(
            make_record(make_job(name), status=status), parity=replace(make_parity(status), **numbers)
        )

    outputs: dict[str, Any] = {"resolution_outputs": 0.0012}
    both: dict[str, Any] = {**outputs, "resolution_gradients": 0.02}
    wide: dict[str, Any] = {"noise_tensors": ("gradient.a",), "resolution_outputs": 0.001}
    yield judged("an older record")
    yield judged("by medians", resolution_median=0.001, resolution_largest=0.0523)
    yield judged("outputs alone", **outputs)
    yield judged("with gradients", **both)
    yield judged("over 1,000 %", **outputs, resolution_gradients=3.8e10)
    yield judged("sensitive", **both, sensitive_tensors=("a", "b"))
    yield judged("coarse", **wide, resolution_gradients=0.23, fine=0.5)
    yield judged("fine", **wide, resolution_gradients=0.09, fine=1.0)
    yield judged("a failure", Status.FAIL_ACCURACY, **both)
    check = {"found_by": "step 2 in a row", "lower_precision": "TF32 or float16"}
    yield judged("found by a check", Status.FAIL_ACCURACY, **check)
    stage = Where(stage="decompositions", compiler="aot_eager_decomp_partition", repro="cases/a/repro.py")
    where = replace(stage, module="blocks.0.act", module_class="GELU")
    yield judged("localized", Status.FAIL_ACCURACY, where=where)
    nowhere = Where(stage="", note="it passes now")
    yield judged("not localized", Status.FAIL_ACCURACY, where=nowhere)
    unjudged = judged("noise", unjudged="3 of 10 tensors are rounding noise: zeros would pass")
    yield replace(unjudged, status=Status.CANNOT_JUDGE)
    approximate = make_record(make_job("quantized"), speedup=3.0)
    yield replace(approximate, status=Status.APPROXIMATE, parity=make_parity(Status.FAIL_ACCURACY))
    yield judged("quantized, at the bar", sqnr_db=28.0)
    yield judged("without fp64", reference="eager")


def two_environments() -> Iterator[Record]:
    """A candidate that fails in one; an environment with other results; a reference that has no times."""
    yield from environments.records("one")
    yield from environments.records("two", {"inductor@new": Status.FAIL_ACCURACY})
    bad = make_parity(Status.FAIL_ACCURACY)
    yield from (replace(r, env_parity=bad) if r.env == "new" else r for r in environments.records("three"))
    yield from (with_samples(record, reference_s=()) for record in environments.records("four"))
    job = make_job("control", environments=environments.ENVIRONMENTS, candidates=("eager@old",))
    yield replace(make_record(job, "eager@old", speedup=1.2, jitter=0.001), env="old")


def sweep() -> Iterator[Record]:
    """A crossover, of which a point failed; and two axes, each over the other."""
    for place, record in enumerate(swept()):
        failed = make_record(record.job, status=Status.FAIL_ACCURACY, speedup=0.1)
        yield failed if place == 2 else record
    for job in points(make_job("two axes"), [("batch", (1, 8)), ("threads", (1, 2))]):
        yield from (make_record(job, name, speedup=2.0) for name in ("inductor", "aot_eager"))


def start_up() -> Iterator[Record]:
    """Races: one that ends early, one that never overtakes; starts that are not what they seem; a stream."""
    eager = [steps(0.1, 0.1, 100)] * 2
    warm = [steps(1.0, 0.05, 20), steps(1.1, 0.05, 100)]
    record = raced({"eager": eager, "cold": [steps(2.0, 0.05, 100)] * 2, "warm": warm})
    yield from (record, replace(record, candidate="aot_eager"))
    slow = raced({"eager": [steps(1.0, 0.1)], "cold": [steps(9.0, 0.2)]}, speedup=0.5)
    yield replace(slow, job=make_job("slow"))
    hits: dict[str, Scalar] = {"compile_cache_hits": 3, "compile_cache_misses": 0}
    misses = {"compile_cache_hits": 0, "compile_cache_misses": 3}
    wrong = {"metrics": hits, "status": Status.FAIL_ACCURACY, "failure": "output: wrong"}
    for name, change in {
        "is warm": {"metrics": hits},
        "found nothing": {"metrics": misses},
        "is as slow": {"first_calls_s": steps(9.0, 0.1)},
        "is wrong": wrong,
        "fails": {"status": Status.FAIL_TO_RUN, "failure": "ValueError: no"},
    }.items():
        loaded = raced({"cold": [steps(9.0, 0.1)] * 3, "cache file": [steps(2.0, 0.1)] * 3})
        forms = [replace(c, **change) if c.start != COLD else c for c in loaded.compilations]  # type: ignore[arg-type]
        yield replace(loaded, job=make_job(name), compilations=tuple(forms))
    stream = Compilation(start=EAGER_START, round=0, first_calls_s=(1.0, 1.0, 1.0, 1.0))
    own = replace(stream, start=SIZES, metrics={"recompiles": 1}, first_calls_s=(0.9, 0.2, 0.5, 0.4))
    job = make_job("a stream", extras=Extras(shapes="batch=4,6"))
    yield replace(make_record(job, speedup=1.5), compilations=(stream, own))


def compilations() -> Iterator[Record]:
    """Which side compiles faster; other work meanwhile; gains within the noise, of which none pays."""
    yield from runs("cold", {"a": 1.0, "b": 1.3}, random.Random(1))
    waits = (compiled(COLD, 90.0, 0), compiled(COLD, 90.0, 1), compiled(COLD, 0.3, 2, compile_waiting_s=0.4))
    yield replace(make_record(make_job("waits")), compilations=waits)
    for name in "cdf":
        yield make_record(make_job(name, dtype="amp"), speedup=1.02, jitter=0.1)


def findings() -> Iterator[Record]:
    """What is said of results that are slow, were not compiled or were disturbed, and of another baseline."""
    slow: dict[str, Scalar] = {"graph_breaks": 3, "graph_break_reasons": "print (model.py:1)"}
    yield make_record(make_job("breaks"), speedup=0.8, metrics=slow)
    yield make_record(make_job("control"), "eager", speedup=0.8)
    yield make_record(make_job("control"), speedup=0.8)
    for name, why in {
        "rnn": ": Dynamo does not support RNN, GRU, or LSTM",
        "disabled": ": the user's code calls torch.compiler.disable",
        "nothing": "",
    }.items():
        failure = Failure(
            kind="NotCompiled", message=f"nothing of the model reached the compiler{why}", phase=""
        )
        yield replace(make_record(make_job(name), status=Status.NOT_COMPILED), failure=failure)
    for dtype in ("bfloat16", "float32"):
        yield make_record(make_job(dtype=dtype, baseline_dtype="float32"), "eager", speedup=0.5)
    wall = {"rounds_wall_s": 10.0}
    clock = {"gpu_clock_min_mhz": 900, "gpu_clock_max_mhz": 1900, "gpu_throttle_reasons": "power cap"}
    for name, metrics in {
        "stolen": {"stolen_cpu_s": 1.0, **wall},
        "throttled": {"throttled_s": 1.0, **wall},
        "beside others": {"involuntary_switches": 5000, **wall},
        "clock": clock,
        "capped": {"gpu_clock_min_mhz": 1300, "gpu_clock_max_mhz": 1330, "gpu_capped_share": 0.9},
        "memory": {"allocator_retries": 3},
    }.items():
        yield make_record(make_job(name), jitter=0.4, metrics=metrics)  # type: ignore[arg-type]


SCENES: dict[str, Callable[[], Iterator[Record]]] = {
    scene.__name__: scene for scene in (parity, two_environments, sweep, start_up, compilations, findings)
}


def told(records: list[Record]) -> str:
    """The report, and of the summary for programs the tables that few runs have."""
    text = markdown.render(summarize(records))["report.md"].decode().partition("<summary>Every fact")[0]
    rows = [
        f"{table}, {row}: {json.dumps({name: short(value) for name, value in fields.items()})}"
        for table, rows in oracle.tables(records).items()
        for row, fields in rows.items()
        if table in TABLES
    ]
    return "\n".join([text, *rows]) + "\n"


# -- comparisons of runs: each the records of its sides, the new one last ----------------------
Sides = tuple[list[Record], ...]


def two_runs() -> Sides:
    """A speedup is lost; results ended otherwise, or are of another condition or batch."""
    steady = dict.fromkeys(MODELS, 1.5)
    first, second = measured(steady), measured({**steady, "model_3": 1.2}, machine="another")
    for name, before, after in (
        ("lost", Status.PASS, Status.CRASH),
        ("fixed", Status.FAIL_ACCURACY, Status.PASS),
        ("other", Status.TIMEOUT, Status.OOM),
        ("skipped", Status.PASS, Status.SKIP),
        ("as before", Status.CRASH, Status.CRASH),
    ):
        first.append(make_record(make_job(name), status=before))
        second.append(make_record(make_job(name), status=after))
    others: list[dict[str, Any]] = [
        *({"batch_size": 4}, {"scale": "small"}, {"dtype": "amp"}, {"device": "cuda"}, {"loss": "mean"}),
        *({"config": ("layers=2",)}, {"baseline_dtype": "float32", "dtype": "float32"}),
        {"options": CompilerOptions(freezing=True)},
        {"protocol": Protocol(use_eval_mode=True)},
    ]
    for other in others:
        name = f"another {next(iter(other))}"
        first.append(make_record(make_job(name)))
        second.append(make_record(make_job(name, **other)))
    first.append(make_record(make_job("two cards of a kind", device="cuda:1")))
    second.append(make_record(make_job("two cards of a kind", device="cuda")))

    def at_batch(size: int | None, name: str, status: Status) -> Record:
        record = make_record(make_job(name), status=status)
        return replace(record, model=replace(known(record.model), batch_size=size) if size else None)

    # at half of the planned batch; then it failed before it told its batch
    first.append(at_batch(4, "half a batch", Status.PASS))
    second.append(at_batch(None, "half a batch", Status.MODEL_FAIL_TO_LOAD))
    # the engine halves the batch down to 1 before it records the failure
    first.append(at_batch(8, "down to 1", Status.PASS))
    second.append(at_batch(1, "down to 1", Status.OOM))
    return first, second


def swept_runs() -> Sides:
    """Point by point: points are no models to average."""
    axes = [("batch", (2, 8)), ("threads", (1, 2))]
    jobs = [job for name in ("model", "other") for job in points(make_job(name), axes)]
    after = [make_record(job, speedup=1.2 if job is jobs[1] else 1.5) for job in jobs[::-1]]
    return [make_record(job, speedup=1.5) for job in jobs], after


def compiled_runs() -> Sides:
    """A time that a cache shortened is not compared with one without; those of --compile-runs always are."""
    rows: dict[str, tuple[tuple[int | None, ...], tuple[int | None, ...], tuple[int, ...]]] = {
        "cold now": ((2, 0), (0, 3), (0, 0)),
        "misses now": ((3, None), (None, 3), (0, 0)),
        "some": ((2, 1), (1, 0), (0, 0)),
        "none": ((0, 0), (2, 3), (0, 0)),
        "untold": ((2, None), (0, None), (0, 0)),
        "compiled once": ((3, 0), (0, 3), (1, 1)),
        "compiled twice": ((3, 0), (0, 3), (2, 2)),
        "compiled once in A": ((3, 3), (None, None), (1, 0)),
    }
    sides: tuple[list[Record], ...] = ([], [])
    for name, (hits, misses, times) in rows.items():
        for side, hit, miss, count, seconds in zip(sides, hits, misses, times, (5.0, 9.0), strict=True):
            numbers: dict[str, Scalar] = {"compile_cache_hits": hit, "compile_cache_misses": miss}
            record = make_record(make_job(name), compilation_s=seconds, metrics=numbers)
            cold = tuple(compiled(COLD, seconds + number, number) for number in range(count))
            side.append(replace(record, compilations=cold))
    return sides


def days() -> Sides:
    """Of a base of several runs, whose days differ by 2 %: a loss of 3 % may be another day."""
    base = [paired.a_run(day) for day in (0.98, 1.0, 1.02)]
    return *base, paired.a_run(1.0, model_1=0.8, model_2=0.97, model_3=1.25)


def environments_of_a_run() -> Sides:
    """Of a pull request: eager before, eager now, compiled now, from the same rounds."""
    return (paired.run(noise=0.02),)


COMPARED: dict[str, Callable[[], Sides]] = {
    scene.__name__: scene for scene in (two_runs, swept_runs, compiled_runs, days, environments_of_a_run)
}


def changes_told(sides: Sides, folder: Path) -> str:
    changes = compared(folder, *sides) if len(sides) > 1 else paired.compared(folder / "run", sides[0])
    results, refusals = gate_results(changes, gates_asked(["regression:5%", "improvement:5%", "parity"]))
    text = render_markdown(changes, results).replace(f"{folder}/", "")
    return "\n".join([text, *map(str, refusals)]) + "\n"


def short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def explained(whys: Mapping[str, Why]) -> str:
    texts = [f"### {name}\n\n{markdown_of_why([why])}" for name, why in whys.items()]
    return "\n".join([*texts, overview_text([*whys.values()])]) + "\n"


@pytest.mark.parametrize("name", [*SCENES, *COMPARED, "explanations"])
def test_a_scene_is_told_as_before(name: str, tmp_path: Path) -> None:
    golden = GOLDEN / f"{name}.md"
    if name in SCENES:
        text = told([*SCENES[name]()])
    else:
        text = changes_told(COMPARED[name](), tmp_path) if name in COMPARED else explained(explanations())
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
