"""``--model``: a model of the user's own, through the real command line."""

from pathlib import Path

import pytest

from runner.store.run_folder import FILES, RunFolder, own_files
from tests.cli.command import ROOT, records, refusal, run_into, statuses
from tests.factories import make_job, make_record

SOURCE = """
import torch

def make(batch_size=4):
    return torch.nn.Linear(8, 4), torch.randn(batch_size, 8)

def named():
    return torch.nn.Linear(8, 4), {"input": torch.randn(4, 8)}, lambda output, target: output.square().mean()

def nothing():
    return None

def generates():
    from harness.workload import Workload
    module = torch.nn.Linear(8, 4)
    return Workload(module=module, args=(torch.randn(4, 8),), drive=lambda module, *args: module(*args))

def frozen():
    return torch.nn.Linear(8, 4).requires_grad_(False), torch.randn(4, 8)

def needs(size):
    return torch.nn.Linear(8, 4), torch.randn(4, 8)

def other_order():
    return torch.nn.Linear(8, 4), torch.randn(4, 8), torch.randn(4, 4), torch.nn.functional.mse_loss

value = 3
"""
BRIEFLY = ("--training", "--compilers=eager", "-n6", "--processes=1", "-dcpu")


def mine(folder: Path) -> Path:
    path = folder / "my_models.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.mark.slow
def test_models_of_ones_own_run_from_the_current_folder_with_ones_own_optimizer(tmp_path: Path) -> None:
    mine(tmp_path)
    folder = tmp_path / "run"
    models = ("--model=my_models:make", "--model=my_models.py:named")
    words = ("--optimizer=torch.optim:Adagrad", "--format=md")
    run_into(folder, *models, *BRIEFLY, *words, cwd=tmp_path)
    assert statuses(folder) == {("make", "eager"): "pass", ("named", "eager"): "pass"}
    for record in records(folder):
        assert len(record["samples"]["baseline_s"]) == 6
        assert record["job"]["protocol"]["optimizer"] == "torch.optim:Adagrad"
    assert "--model=my_models:make" in records(folder)[0]["reproduce"]
    assert "a step of torch.optim:Adagrad" in (folder / "report.md").read_text()


@pytest.mark.slow
def test_clipping_rates_checkpoints_and_accumulation_are_of_ones_own_optimizer_and_model(
    tmp_path: Path,
) -> None:
    example = ROOT / "examples" / "own_training.py"
    words = (f"--model={example}:make", f"--optimizer={example}:optimizer", "--compilers=eager,aot_eager")
    run_into(tmp_path / "run", *words, "--training", "-n6", "--processes=1", "-dcpu")
    assert set(statuses(tmp_path / "run").values()) == {"pass"}


@pytest.mark.slow
def test_a_model_trains_on_the_text_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXT", str(ROOT / "README.md"))
    words = (f"--model={ROOT / 'examples' / 'text_training.py'}:make", "--compilers=eager", "--trajectory=20")
    run_into(tmp_path / "run", *words, "--training", "--accuracy", "-dcpu")
    report = (tmp_path / "run" / "report.md").read_text()
    assert "Training runs: 20 steps, adamw at a rate of 0.001, other batches in each step" in report
    assert list((tmp_path / "run").glob("*_trajectories.png"))


WRONG_ORDER = (
    "returned a wrong loss: it must be a function of (output, target), not of type Tensor; "
    "the order is (module, inputs, loss, target)"
)
REFUSED = [
    ("my_models:nothing", [], "--model: my_models:nothing returned a NoneType; it must return (module,"),
    ("my_models:other_order", [], WRONG_ORDER),
    ("my_models.py", [], "file.py:function; it has my_models.py:make, my_models.py:named, my_models.py:"),
    ("my_models:needs", [], "missing a required argument: 'size'; give it a default"),
    ("my_models:mak", [], "--model: my_models has no function 'mak'; did you mean make?"),
    ("no.such.module:make", [], "--model: there is no module 'no.such.module' here; give package.module"),
    ("my_models:named", ["--batch-size=2"], "--batch-size: my_models:named has no parameter called"),
    ("my_models:named", ["--model-config=a=1"], "has no configuration that can be changed"),
    ("my_models:frozen", ["--training"], "--training: of my_models:frozen, nothing requires a gradient"),
    ("my_models:make", ["--generate"], "--generate: my_models:make does not say how it generates"),
    ("my_models:generates", ["--generate"], "my_models:generates has no parameter called prompt_tokens"),
    ("my_models:named", ["--shapes=sequence=2,4"], "--shapes: my_models:named has no parameter called"),
    ("broken.py:make", [], "broken.py, line 2: "),
    ("needs_more:make", [], "--model: needs_more cannot be imported: ModuleNotFoundError: No module named"),
]


@pytest.mark.parametrize(
    ("spec", "more", "says"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.series
def test_what_cannot_be_is_refused_first(spec: str, more: list[str], says: str, tmp_path: Path) -> None:
    mine(tmp_path)
    (tmp_path / "broken.py").write_text("import torch\ndef make(:\n")
    (tmp_path / "needs_more.py").write_text("import nothing_like_that\n")
    mode = [] if {"--training", "--generate"} & set(more) else ["--inference"]
    words = [*mode, "-dcpu", "--compilers=eager", "--accuracy", *more]
    sentence = refusal(f"--model={spec}", *words, f"--output-dir={tmp_path / 'run'}", cwd=tmp_path)
    assert sentence.startswith("error: --")
    assert says in sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_costs_itself_alone(tmp_path: Path) -> None:
    """One returns nothing, one is nothing to train, one raises, one file cannot be imported."""
    mine(tmp_path)
    (tmp_path / "needs_more.py").write_text("import nothing_like_that\n")
    names = ("my_models:make", "my_models:nothing", "my_models:frozen", "my_models:needs", "needs_more:any")
    models = [f"--model={name}" for name in names]
    run_into(tmp_path / "run", *models, *BRIEFLY, cwd=tmp_path, code=1)
    ended = {name: status for (name, _), status in statuses(tmp_path / "run").items()}
    assert ended.pop("frozen").startswith("eager_")
    unloaded = dict.fromkeys(("nothing", "needs", "any"), "model_fail_to_load")
    assert ended == {"make": "pass", **unloaded}
    sentences = [record["failure"]["message"] for record in records(tmp_path / "run") if record["failure"]]
    assert any("returned a NoneType; it must return (module," in sentence for sentence in sentences)
    refused = refusal(*models[1:], "--model=my_models:absent", *BRIEFLY, cwd=tmp_path)
    assert "my_models has no function 'absent'" in refused


def test_a_file_that_was_edited_before_the_run_goes_on_is_named(tmp_path: Path) -> None:
    models, compilers = mine(tmp_path), tmp_path / "compilers.py"
    compilers.touch()
    job = make_job(suite=f"{models}:make", own_compilers={"mine": f"{compilers}:compile"})
    folder = RunFolder.create(tmp_path / "run", [job], [], {FILES: own_files([job])})
    for edited in (None, models, compilers):
        if edited is not None:
            edited.write_text("other = 1\n")
        said = folder.edited([job])
        assert len(said) == [None, models, compilers].index(edited)
        assert edited is None or f"{edited} was edited after the run began" in " ".join(said)
    assert folder.pursued([job]) == (job,)  # its candidate has no record yet
    for candidate in job.candidates:
        folder.append(make_record(job, candidate))
    assert folder.pursued([job]) == ()  # a further process would be of another model
