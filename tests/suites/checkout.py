"""A made-up checkout with the layout of pytorch/benchmark: its base class, good and bad models."""

from __future__ import annotations

from pathlib import Path

BASE = """\
import torch


class BenchmarkModel:
    DEFAULT_TRAIN_BSIZE = None
    DEFAULT_EVAL_BSIZE = None

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        torch.manual_seed = lambda seed: torch.random.manual_seed(1337)  # as theirs
        default = self.DEFAULT_TRAIN_BSIZE if test == "train" else self.DEFAULT_EVAL_BSIZE
        self.test, self.device, self.batch_size = test, device, batch_size or default
"""
MODEL = """\
import torch

from ...util.model import BenchmarkModel


class Model(BenchmarkModel):
    task = None
    DEFAULT_TRAIN_BSIZE = 64  # of the paper
    DEFAULT_EVAL_BSIZE: int = 128
{more}
    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        self.inputs = torch.randn(self.batch_size, 8)

    def get_module(self):
        return self.model, {inputs}
"""
MODELS = {
    "linear": MODEL.format(more="", inputs="(self.inputs,)"),
    "named_inputs": MODEL.format(more="", inputs='{"input": self.inputs}'),
    "own_size": MODEL.format(more="    ALLOW_CUSTOMIZE_BSIZE = False\n", inputs="[self.inputs]"),
    "needs_a_package": "import some_missing_package.part\n" + MODEL.format(more="", inputs="(self.inputs,)"),
    "needs_the_network": MODEL.format(more="", inputs="(self.inputs,)").replace(
        "        self.inputs = ", '        raise OSError("Name or service not known")\n        self.inputs = '
    ),
    "without_a_model": "x = 1\n",
    "hf_GPT2": MODEL.format(more="", inputs="(self.inputs,)"),
}


def made_up(folder: Path) -> Path:
    """The checkout, written into the folder."""
    for name, text in {
        "__init__.py": "",
        "models/__init__.py": "",
        "models/ADDING_MODELS.md": "no model",
        "util/__init__.py": "",
        "util/model.py": BASE,
        **{f"models/{name}/__init__.py": text for name, text in MODELS.items()},
        **{f"models/{name}/metadata.yaml": "eval_benchmark: true\n" for name in MODELS},
        "models/only_a_folder/requirements.txt": "",
    }.items():
        path = folder / "torchbenchmark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
