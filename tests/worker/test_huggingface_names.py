"""Which classes are models, by the lists of newer and older transformers: fakes, each in its own process."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from suites.models.huggingface_inputs import text_config

REPOSITORY = Path(__file__).resolve().parents[2]
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
    (tmp_path / "transformers" / "__init__.py").write_text(
        f"__version__ = '4.0'\n_class_to_module = {top!r}\n"
    )
    (package / "__init__.py").write_text(f"_class_to_module = {inside!r}\n")
    done = subprocess.run(
        [sys.executable, "-c", "from suites.models.huggingface_names import *; print(model_class_names())"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "('FooForMaskedLM',)", done.stderr


def test_a_configuration_of_older_transformers_has_no_part_for_text() -> None:
    part = SimpleNamespace(vocab_size=3)
    assert text_config(part).vocab_size == 3
    assert text_config(SimpleNamespace(vocab_size=4, get_text_config=lambda: part)).vocab_size == 3
