"""torchvision and transformers in each form that a machine may have: fakes, each in its own process."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from suites.models.huggingface_inputs import text_config
from tests.accelerator import ROOT
from tests.command_line import ran

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
PROGRAM = """
import sys
from harness.loading.torchvision_ops import mend_torchvision
mend_torchvision()
mend_torchvision()
assert not {"torch", "torchvision"} & {*sys.modules}
import torchvision.extension
import torch
assert torchvision is sys.modules["torchvision"] and torchvision._meta_registrations
print("nms" if hasattr(torch.ops.torchvision, "nms") else "no nms")
print(torchvision.extension._has_ops())
print(torch.ops.torchvision.nms.default._schema)
"""

# As torchvision's own files: the extension is looked for, its failure is hidden, and the fake kernel comes
# all the same. A Python file stands for the shared library; both define the operators when they are loaded,
# and both refuse a second definition: the library ends the process, Python raises.
EXTENSION = """
import importlib.util
from pathlib import Path
import torch

def _load_library(name):
    path = Path(__file__).with_name(name)
    if not path.exists():
        return False
    try:
        exec(path.read_text(), globals())
    except OSError:
        return False
    return True

_loaded = _load_library("of_a_later_year.so")

def _has_ops():
    return _loaded
{check}
"""
LIBRARY = """
own = torch.library.Library("torchvision", "DEF")
own.define("nms{schema}")
"""
INIT = """
from . import extension
from torchvision import _meta_registrations
"""
META = """
import torch
import torchvision.extension

def nms(dets, scores, iou_threshold):
    return dets

implementation = torch.library.Library("torchvision", "IMPL", "Meta")
for name in {operators!r}:
    if not hasattr(torch.ops.torchvision, name):
        raise RuntimeError("operator torchvision::" + name + " does not exist")
    implementation.impl(getattr(torch.ops.torchvision, name).default, nms)
"""
OPERATORS = ("nms",)


def package(
    folder: Path, content: str | None, check: str = "", operators: tuple[str, ...] = OPERATORS
) -> Path:
    """A torchvision whose library has this content; None for a library that is not there."""
    root = folder / "torchvision"
    root.mkdir()
    (root / "__init__.py").write_text(INIT)
    (root / "extension.py").write_text(EXTENSION.format(check=check))
    (root / "_meta_registrations.py").write_text(META.format(operators=operators))
    if content is not None:
        (root / "of_a_later_year.so").write_text(content)
    return folder


def run(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return ran(sys.executable, "-c", program, cwd=ROOT, env=variables)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "loads"),
    [(LIBRARY.format(schema=SCHEMA), True), (None, False), ("raise OSError('undefined symbol')", False)],
)
def test_operators_are_defined_where_the_extension_does_not_load_and_else_left_alone(
    tmp_path: Path, content: str | None, *, loads: bool
) -> None:
    done = run(PROGRAM, package(tmp_path, content))
    assert done.returncode == 0, done.stderr
    has, loaded, schema = done.stdout.splitlines()
    assert (has, loaded) == ("nms", str(loads))
    assert loads or schema == f"torchvision::nms{SCHEMA}"


def test_the_installed_torchvision_has_these_operators() -> None:
    """It is imported as in a worker: ``conftest.py`` has mended it."""
    pytest.importorskip("torchvision")
    assert SCHEMA in str(torch.ops.torchvision.nms.default._schema)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "operators", "reason"),
    [
        ("raise RuntimeError('made for CUDA 13.\\nPlease reinstall')", OPERATORS, "made for CUDA 13"),
        ("", ("nms", "of_a_later_year"), "operator torchvision::of_a_later_year does not exist"),
    ],
    ids=["other CUDA", "more operators"],
)
def test_a_torchvision_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, check: str, operators: tuple[str, ...], reason: str
) -> None:
    done = run(PROGRAM, package(tmp_path, None, check, operators))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert last.startswith("ImportError: torchvision")
    assert last.endswith(f"({reason}); install the torchvision that was released for this torch")


# -- transformers ---------------------------------------------------------------------------------
NEW = {
    "FooForMaskedLM": "models.foo.modeling_foo",
    "TFFooForMaskedLM": "models.foo.modeling_tf_foo",
    "FooConfig": "models.foo.configuration_foo",
    "FooPreTrainedModel": "models.foo.modeling_foo",
}


@pytest.mark.parametrize(
    "old", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["names modules", "names packages"]
)
def test_the_models_are_found(tmp_path: Path, *, old: bool) -> None:
    package = tmp_path / "transformers" / "models" / "foo"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    top = dict.fromkeys(NEW, "models.foo") if old else NEW
    inside = {name: module.rpartition(".")[2] for name, module in NEW.items()}
    first = tmp_path / "transformers" / "__init__.py"
    first.write_text(f"__version__ = '4.0'\n_class_to_module = {top!r}\n")
    (package / "__init__.py").write_text(f"_class_to_module = {inside!r}\n")
    done = run("from suites.models.huggingface_names import *; print(model_class_names())", tmp_path)
    assert done.stdout.strip() == "('FooForMaskedLM',)", done.stderr


def test_a_configuration_of_older_transformers_has_no_part_for_text() -> None:
    part = SimpleNamespace(vocab_size=3)
    assert text_config(part).vocab_size == 3
    assert text_config(SimpleNamespace(vocab_size=4, get_text_config=lambda: part)).vocab_size == 3
