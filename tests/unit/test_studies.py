"""What the studies share, and study A's arithmetic: chunks, journal, corpus, flags, tables."""

import json
import random
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from runner.errors import UsageError
from studies import corpus
from studies.__main__ import main
from studies.journal import Journal, Line, of_kind, read_lines
from studies.training_time.chunks import alternate, plan_chunks
from studies.training_time.report import following, paired, render, variants_of
from tests.factories import Capture, Clock, Patch, known


class Fake:
    """A learner that takes ``cost`` seconds a step and may fail at one."""

    def __init__(self, name: str, clock: Clock, cost: float, *, fails_at: int | None = None) -> None:
        self.name, self._clock, self._cost, self._fails_at = name, clock, cost, fails_at
        self.done: list[int] = []

    def prepare(self) -> None:
        if self._fails_at == -1:
            raise RuntimeError("cannot compile")
        self._clock.now += 3.0

    def run(self, first: int, steps: int) -> Sequence[float]:
        if self._fails_at is not None and first <= self._fails_at < first + steps:
            raise RuntimeError("broke")
        self._clock.now += steps * self._cost
        self.done += range(first, first + steps)
        return [4.0 - 0.01 * step for step in range(first, first + steps)]

    def evaluate(self) -> tuple[float, float]:
        self._clock.now += 100.0  # must not count
        return 1.0, 2.0


def test_variants_take_turns_in_changing_order_and_only_steps_are_timed() -> None:
    clock = Clock()
    learners = [Fake("a", clock, 1.0), Fake("b", clock, 2.0), Fake("c", clock, 3.0)]
    chunks = plan_chunks(40, 4, 10)
    events = list(alternate(learners, chunks, random.Random(0), clock))
    kinds = [kind for kind, _ in events]
    assert (kinds[:3], kinds[-3:]) == (["prepared"] * 3, ["outcome"] * 3)
    done = [facts for kind, facts in events if kind == "chunk"]
    turns = [[e["variant"] for e in done[n : n + 3]] for n in range(0, len(done), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 2
    assert all(e["seconds"] == e["steps"] * {"a": 1, "b": 2, "c": 3}[e["variant"]] for e in done)
    assert all(learner.done == list(range(40)) for learner in learners)


def test_one_that_fails_is_told_and_the_others_go_on() -> None:
    clock = Clock()
    failing = {"good": None, "bad": 9, "no": -1}
    learners = [Fake(name, clock, 1.0, fails_at=step) for name, step in failing.items()]
    events = list(alternate(learners, plan_chunks(20, 5, 5), random.Random(1), clock))
    ended = {f["variant"]: (f["status"], f["message"]) for kind, f in events if kind == "outcome"}
    assert ended == {
        "good": ("PASS", None),
        "bad": ("FAIL_RUN", "RuntimeError: broke"),
        "no": ("FAIL_PREPARE", "RuntimeError: cannot compile"),
    }
    assert learners[0].done == list(range(20))


def lines_of(values: dict[str, tuple[float, float]]) -> list[Line]:
    """A study of two seeds in which each variant's loss is off by (offset, second seed's offset)."""
    about = {"study": "training-time", "variants": list(values), "parameters": 5, "environment": {}}
    sizes, text = {"steps": 28, "batch": 2, "block": 4, "seeds": 2}, {"name": "shakespeare", "characters": 10}
    lines: list[Line] = [{"kind": "study", **about, "sizes": sizes, "text": text}]
    for seed in (0, 1):
        lines += [
            {"kind": "prepared", "variant": v, "seed": seed, "prepare_s": 3.0 / (seed + 1)} for v in values
        ]
        for chunk in plan_chunks(28, 5, 5):
            for variant, offsets in values.items():
                last = chunk.first + chunk.steps - 1
                cost = 0.5 if "compile" in variant else 1.0
                compilation_s = 6.0 if chunk.first == 0 and "compile" in variant else 0.0
                valid = 3.0 - last / 50 + offsets[seed] if chunk.evaluate else None
                times = {"losses": [2.0] * chunk.steps, "seconds": cost * chunk.steps + compilation_s}
                place = {"seed": seed, "variant": variant, "first": chunk.first, "steps": chunk.steps}
                lines.append({"kind": "chunk", **place, **times, "valid": valid})
        ended = {"kind": "outcome", "seed": seed, "status": "PASS", "message": None}
        lines += [{**ended, "variant": v} for v in values]
    return lines


def test_compile_and_run_are_told_apart_and_ratios_come_from_pairs() -> None:
    lines = lines_of({"float32 eager": (0, 0.1), "float32 compile": (0.01, 0.1)})
    eager, compiled = variants_of(lines).values()
    seconds = [eager.compile_s, eager.run_s, compiled.compile_s, compiled.run_s]
    assert seconds == pytest.approx([3.0, 28.0, 9.0, 14.0])
    steps = known(paired(eager, compiled))
    assert [steps.factor, steps.low, steps.high] == pytest.approx([2.0] * 3)


def test_compiled_follows_eager_within_the_spread_of_seeds_and_not_beyond() -> None:
    values = {"float32 eager": (0.0, 0.1), "float32 compile": (0.01, 0.09), "float32 submodules": (0.3, 0.4)}
    lines = lines_of(values)
    eager, compiled, _ = variants_of(lines).values()
    assert following(compiled, eager) == pytest.approx((0.01, 0.1))
    report = render(lines)
    assert report.failures == ["float32 submodules: DOES NOT FOLLOW"]
    assert re.search(r"compile \| +0.01 \| +0.1 \| +follows", report.text)


def test_a_killed_or_failed_training_is_compared_up_to_its_end_and_has_no_time() -> None:
    lines = lines_of({"float32 eager": (0.0, 0.1), "float32 compile": (0.01, 0.09)})
    killed = [line for line in lines if line["kind"] != "outcome" or "eager" in line["variant"]][:-1]
    eager, compiled = variants_of(killed).values()
    assert (known(eager.failed).status, eager.wall_s) == ("CUT_SHORT", 31.0)
    assert (known(compiled.failed).status, compiled.wall_s) == ("CUT_SHORT", None)
    assert following(compiled, eager) == pytest.approx((0.01, 0.1))
    failed = [*of_kind(lines, "study"), {**of_kind(lines, "outcome")[0], "status": "FAIL_PREPARE"}]
    report = render(failed)
    assert report.failures == ["float32 eager: FAIL_PREPARE", "float32 compile: CUT_SHORT"]
    assert "did not train" in report.text


def test_a_report_is_derived_again_from_what_a_killed_run_left(tmp_path: Path, capsys: Capture) -> None:
    *whole, torn, _ = map(json.dumps, lines_of({"float32 eager": (0.0, 0.1)}))
    (tmp_path / "records.jsonl").write_text("\n".join([*whole, torn[:40]]))
    assert main(["report", str(tmp_path)]) == 1
    assert "CUT_SHORT" in capsys.readouterr().out


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "committed",
    [
        *("c-cpu/expectations.md", "b-cpu/report.md", "f-cpu/one-core.md"),
        *map(slow, ("c-cpu/batch/expectations.md", "c-cpu/llama-4/expectations.md", "a-cpu/report.md")),
        *map(slow, ("c-cpu/llama-5/expectations.md", "b-long-cpu/report.md")),
        *(slow(f"b-more-cpu/{run}/report.md") for run in ("digits", "subtraction", "seed-1", "seed-2")),
    ],
)
def test_a_committed_report_is_derived_again_to_the_byte(committed: str, tmp_path: Path) -> None:
    """Its tables, judgments and sentences, beside what the sources published."""
    report = Path(__file__).parents[2] / "results" / f"study-{committed}"
    for records in report.parent.rglob("records.jsonl.gz"):
        copy = tmp_path / records.relative_to(report.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(records, copy)
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / report.name).read_bytes() == report.read_bytes()


def test_a_journal_keeps_lines_and_refuses_a_folder_in_use(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run", "training-time")
    journal.write("study", study="training-time", value=float("nan"), more=[float("inf"), 1.5])
    (line,) = read_lines(tmp_path / "run")
    assert line == {"kind": "study", "study": "training-time", "value": None, "more": [None, 1.5]}
    with pytest.raises(UsageError, match="name a new folder"):
        Journal(tmp_path / "run", "training-time")


def test_the_text_is_found_by_its_checksum_or_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def offline() -> bytes:
        raise OSError("no network")

    with pytest.raises(UsageError, match=r"as tinyshakespeare.txt and give its folder with --data-dir"):
        corpus.shakespeare(None, offline)
    with pytest.raises(UsageError, match="another SHA-256 checksum"):
        corpus.shakespeare(None, lambda: b"another text")
    with pytest.raises(UsageError, match="put the corpus there"):
        corpus.shakespeare(tmp_path)
    monkeypatch.setattr(corpus, "SHA256", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    assert corpus.shakespeare(None, lambda: b"hello").text == "hello"
    assert corpus.shakespeare(None, offline).text == "hello"  # kept


NO_TEXT = ("--tasks=shakespeare", "--models=HuggingFaceGPT")
OF_IMPLEMENTATIONS = (
    (["--budget=soon"], "--budget: 'soon' is not a time"),
    (["--models=LSTM"], "--models: there is no model called 'LSTM'"),
    (["--tasks=chess"], "--tasks: there is no task called 'chess'"),
    (["--learning-rates=1e-3,2"], "--learning-rates: '2' is not a learning rate"),
    (["--seed=-1"], "--seed: -1 is too small"),
    (["--operations=*"], "--operations: there is no operation called '*'"),
    (["--number-digits=1"], "--number-digits: there is no number of digits called '1'"),
)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "the following arguments are required: STUDY"),
        (["training"], "training-time"),
        (["training-time", "--precisions=fp8"], "--precisions: there is no precision called 'fp8'"),
        (["training-time", "--device=cpu", "--precisions=tf32,float32"], "exists on CUDA only"),
        (["training-time", "--device=cpu", "--modes=script"], "eager is the baseline of the other modes"),
        (["training-time", "--device=cpu", "--precisions=amp_bfloat16"], "ratios are relative to float32"),
        (["training-time", "--steps=0"], "--steps: 0 is too small"),
        (["training-time", "--device=cpu", "--learning-rate=fast"], "--learning-rate: 'fast' is not"),
        slow(["training-time", "--device=cpu", "--data-dir=/nowhere"], "there is no folder /nowhere"),
        slow(["training-time", "--device=cpu", "--quick", "--block-size=300"], "256 characters at most"),
        (["training-time", "--device=tpu"], "there is no device called 'tpu'"),
        *((["implementations", "--device=cpu", *flags], sentence) for flags, sentence in OF_IMPLEMENTATIONS),
        slow(["implementations", "--device=cpu", *NO_TEXT, "--data-dir=/nowhere"], "is no folder /nowhere"),
        slow(["implementations", "--device=cpu", *NO_TEXT, "--quick"], "there is nothing to train"),
        (["compile-modes", "--parts=sound"], "--parts: there is no part called 'sound'"),
        (["compile-modes", "--device=cpu", "--dtypes=tf32"], "--dtypes: tf32 exists on CUDA devices only"),
        (["compile-modes", "--device=cpu", "--data-dir=."], "--data-dir: there is no such flag"),
        (["compile-modes", "--device=cpu", "--list"], "compile-modes measures"),
        (["report", "/nowhere"], "there is no records.jsonl in /nowhere"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_writes_nothing(
    flags: list[str], sentence: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(flags) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
