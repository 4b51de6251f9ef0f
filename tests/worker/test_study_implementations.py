"""Studies A and B: examples, tasks, when training stops, and what a run reports, with small sizes."""

import csv
import itertools
import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.errors import UsageError
from studies.cli import main
from studies.corpus import synthetic
from studies.implementations import run as implementations
from studies.implementations.addition import SYMBOLS, additions, encode, examples, generate
from studies.implementations.run import Rule, Task, addition_task, fit, plans, text_task
from studies.journal import Journal, of_kind, read_lines
from studies.options import ImplementationsOptions
from suites.models.next_symbol import MLP
from suites.tiny_gpt import make_model
from tests.factories import Capture, Patch
from tests.worker.planted import CPU


def test_each_symbol_of_a_result_is_an_example_of_its_own() -> None:
    shown = examples("321+654=9750|")
    assert [("".join(SYMBOLS[t] for t in given), SYMBOLS[target]) for given, target in shown] == [
        ("0000321+654=", "9"),
        ("000321+654=9", "7"),
        ("00321+654=97", "5"),
        ("0321+654=975", "0"),
        ("321+654=9750", "|"),
    ]
    assert len(SYMBOLS) == 16
    assert encode("0|") == [0, 15]


def test_no_addition_is_both_trained_on_and_held_out() -> None:
    (train, _), (test, _) = additions(seed=3, drawn=3000, held_out=200)
    assert test.shape == (200 * 5, 12)
    questions = [{tuple(given[4:].tolist()) for given in inputs[::5].roll(0, 1)} for inputs in (train, test)]
    assert len(questions[1]) == 200
    assert not questions[0] & questions[1]
    assert len(questions[0]) + len(questions[1]) <= 3000
    again = additions(seed=3, drawn=3000, held_out=200)
    assert torch.equal(again[0][0], train)


def test_the_additions_of_a_seed_are_those_of_the_committed_runs() -> None:
    """Subtractions came later. They must not change which additions a seed draws."""
    source = random.Random(7)
    first = [(source.randrange(1000), source.randrange(1000)) for _ in range(100)]
    _, (test, _) = additions(seed=7, drawn=100, held_out=10)
    expected = [encode(generate(x, "+", y))[:-1] for x, y in first[:10]]
    assert test[4::5].tolist() == expected


@pytest.mark.parametrize("name", ["HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer"])
def test_a_model_reads_as_many_symbols_as_the_numbers_need(name: str) -> None:
    (plan,) = plans(options(models=(name,), learning_rates=(1e-3,)), ("addition",))
    assert implementations.config_of(plan, 3) == dict(plan.entry.config)
    config = implementations.config_of(plan, 5)
    assert (config.get("input_len") or config["block_size"]) == 18
    model = make_model(name, config)
    assert model(torch.zeros(2, 18, dtype=torch.long)).shape[::2] == (2, 16)


@pytest.mark.parametrize("last_only", [True, False])
def test_text_is_held_out_and_targets_follow(last_only: bool) -> None:
    corpus = synthetic()
    symbols = corpus.symbols
    task = text_task(corpus, block=128, last_only=last_only)
    held_out = corpus.text[corpus.training_length :]

    def decode(tokens: list[int]) -> str:
        return "".join(symbols[token] for token in tokens)

    inputs, targets = task.test
    assert all(decode(window) in held_out for window in inputs.tolist()[:20])
    drawn, after = task.draw(50, torch.Generator().manual_seed(0))
    training = corpus.text[: corpus.training_length]
    for window, target in zip(drawn.tolist(), after.tolist(), strict=True):
        follows = decode([target] if last_only else target)
        assert decode(window) + (follows if last_only else follows[-1]) in training
    assert targets.shape == (inputs.shape[:1] if last_only else inputs.shape)


COLUMNS = (
    *("model", "learning_rate", "train_loss", "test_loss", "test_accuracy", "num_parameters"),
    *("time_per_example_in_micros", "train_time_in_seconds"),
)  # the study's


def small() -> tuple[torch.nn.Module, Task]:
    torch.manual_seed(0)
    model = MLP(vocab_size=16, input_len=12, n_embd=4, n_hidden=8)
    return model, addition_task(seed=0, drawn=300, held_out=20)


def points(rule: Rule) -> list[Any]:
    """Each look at the clock takes a second."""
    model, task = small()
    clock = itertools.count(1.0).__next__
    return list(fit(model, task, rule, 0, CPU, clock))


def test_training_ends_with_its_budget_and_is_evaluated_there() -> None:
    curve = points(Rule(1e-2, 32, budget_s=25, every=10))
    assert [p["step"] for p in curve[:3]] == [1, 10, 20]  # after the first step, as in the source
    assert curve[-1]["seconds"] == pytest.approx(25, abs=3)
    assert curve[-1]["train_loss"] < curve[0]["train_loss"]
    assert all(0 <= p["train_accuracy"] <= 1 for p in curve)
    assert {p["inference_micros"] for p in curve} == {1e6 / 100}  # a second for 20 results of five symbols


def options(**more: Any) -> ImplementationsOptions:
    return replace(ImplementationsOptions(device="cpu").checked(), **more)


def test_the_plan_is_the_published_sweep() -> None:
    sweep = plans(options(device="cuda"), ("addition", "shakespeare"))
    on_addition = [p for p in sweep if p.task == "addition"]
    assert len(on_addition) == 12
    assert {(p.rule.budget_s, p.rule.batch) for p in on_addition} == {(60.0, 2048)}
    rules = [(p.entry.implementation, p.rule) for p in sweep if p not in on_addition]
    on_text = [(name, rule.batch, rule.budget_s, rule.learning_rate) for name, rule in rules]
    assert on_text == [
        *[("MLP", 2048, 300.0, 1e-2)] * 2,
        ("MLP", 2048, 600.0, 1e-2),
        *[("TLTransformer", 1024, 300.0, 1e-2)] * 2,
        *[("NanoGPT", 2048, 300.0, 1e-2)] * 2,
    ]


@pytest.mark.slow
def test_a_tiny_run_has_the_columns_of_the_study(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    flags = ["--quick", "--device=cpu", "--budget=0.2s", "--models=MLP,TLTransformer"]
    assert main(["implementations", *flags, f"--output-dir={folder}"]) == 0
    told = capsys.readouterr().out
    assert "NOT Shakespeare but a synthetic text" in told
    assert "not judged" in told
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[:8] == COLUMNS
    counts = {row["case"]: int(row["num_parameters"]) for row in rows}
    assert all(float(row["inference_micros"]) > 0 for row in rows)
    assert all(0 <= float(row["train_accuracy"]) <= 1 for row in rows)
    assert counts["MLP_addition"] == 14_608
    assert counts["TLTransformer_addition"] == 13_872
    assert all(row["status"] == "PASS" for row in rows)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"curves_addition.png", "curves_shakespeare.svg", "report.md", "records.jsonl"}
    assert "accuracy by symbol (thin: training)" in (folder / "curves_addition.svg").read_text()
    assert main(["report", str(folder)]) == 0


def test_without_the_text_the_rest_runs_unless_it_was_asked_for(monkeypatch: Patch) -> None:
    def missing(_: Path | None) -> None:
        raise UsageError("the text is not here")

    monkeypatch.setattr(implementations, "shakespeare", missing)
    assert implementations.corpus_for(options()) == (None, "the text is not here")
    assert implementations.corpus_for(options(tasks=("addition",))) == (None, None)
    with pytest.raises(UsageError, match="not here"):
        implementations.corpus_for(options(only_asked=True))


# -- study A --------------------------------------------------------------------------------------
def run(folder: Path, *flags: str) -> int:
    return main(["training-time", "--quick", "--device=cpu", f"--output-dir={folder}", *flags])


@pytest.mark.slow
def test_eager_and_script_train_and_are_reported(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    assert run(folder, "--modes=eager,script", "--precisions=float32", "--steps=10", "--seeds=2") == 0
    told = capsys.readouterr().out
    assert "Step     0: loss=4." in told
    assert "NOT Shakespeare" in told
    assert "TorchSharp 0.100.7 (published, not measured here)" in told
    lines = read_lines(folder)
    assert lines[0]["parameters"] == 149_544
    assert lines[0]["attention_kernels"] == ["flash", "memory-efficient"]  # torch's default
    assert [line["status"] for line in of_kind(lines, "outcome")] == ["PASS"] * 4
    losses: dict[tuple[str, int], list[float]] = defaultdict(list)
    for chunk in of_kind(lines, "chunk"):
        losses[chunk["variant"], chunk["seed"]] += chunk["losses"]
    for seed in (0, 1):
        eager, script = losses["float32 eager", seed], losses["float32 script", seed]
        assert len(eager) == 10
        assert script == pytest.approx(eager, rel=1e-4)
        assert eager[-1] < eager[0] - 0.1
    names = {path.name for path in folder.iterdir()}
    assert names >= {"report.md", "loss_curves.png", "loss_curves.svg", "records.jsonl"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own, where Dynamo looks
def test_every_variant_trains(tmp_path: Path) -> None:
    assert run(tmp_path / "run") == 0
    outcomes = of_kind(read_lines(tmp_path / "run"), "outcome")
    assert len(outcomes) == 2 * 2 * 4
    assert {line["status"] for line in outcomes} == {"PASS"}


def test_a_full_disk_ends_in_a_sentence(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "records.jsonl"))

    monkeypatch.setattr(Journal, "write", full)
    flags = ["training-time", "--device=cpu", "--quick", f"--output-dir={tmp_path / 'run'}"]
    assert main(flags) == 2
    assert "records.jsonl cannot be used (No space left on device)" in capsys.readouterr().err
