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


def _beginning_with(*lines: str) -> str:
    """A model whose constructor first does this."""
    begin = "".join(f"        {line}\n" for line in lines)
    return "import urllib.error\nfrom pathlib import Path\n\n" + MODEL.format(
        more="", inputs="(self.inputs,)"
    ).replace("        super()", f"{begin}        super()")


MODELS = {
    "linear": MODEL.format(more="", inputs="(self.inputs,)"),
    "named_inputs": MODEL.format(more="", inputs='{"input": self.inputs}'),
    "own_size": MODEL.format(more="    ALLOW_CUSTOMIZE_BSIZE = False\n", inputs="[self.inputs]"),
    "needs_a_package": "import some_missing_package.part\n" + MODEL.format(more="", inputs="(self.inputs,)"),
    "needs_the_network": _beginning_with(
        "try: raise urllib.error.URLError('Name or service not known')",
        "except OSError as error: raise RuntimeError('no weights') from error",
    ),
    "needs_a_file": _beginning_with("open(Path(__file__).parents[2] / 'data' / '.data' / 'images.pt')"),
    "needs_data": _beginning_with("assert False, 'no data: run install.py again'"),
    "needs_the_installer": _beginning_with("from torchbenchmark.util.framework.fb.installer import install"),
    "needs_another_version": _beginning_with("from torch.nn import LinearOfTomorrow"),
    "needs_another_module": _beginning_with("import torch.no_such_part"),
    "fails": _beginning_with("raise ValueError('seven layers are too few')"),
    "sets_what_it_likes": _beginning_with(
        "torch.set_default_device('cpu')", "torch.set_default_dtype(torch.float64)", "Path('made').mkdir()"
    ),
    "has_weights": _beginning_with(
        "import torchvision", "self.inner = torchvision.models.squeezenet1_1(weights='DEFAULT')"
    ),
    "yolov3": MODEL.format(more="", inputs="['a loop', 'of its own']"),
    "vision_maskrcnn": MODEL.format(more="", inputs="(self.inputs,)")
    .replace("extra_args=[]):", "extra_args=[], model_kwargs=None):\n        self.given = model_kwargs", 1)
    .replace("return ", "self.model.given = self.given\n        return "),
    "maml": MODEL.format(more="", inputs="(self.inputs,)"),
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
        "util/framework/__init__.py": "",
        "util/model.py": BASE,
        **{f"models/{name}/__init__.py": text for name, text in MODELS.items()},
        **{f"models/{name}/metadata.yaml": "eval_benchmark: true\n" for name in MODELS},
        "models/only_a_folder/requirements.txt": "",
    }.items():
        path = folder / "torchbenchmark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
