"""Names of devices, without torch; and that one file alone knows them."""

import ast
from pathlib import Path

import pytest

from harness import devices
from tests.unit.test_house import ROOMS, ROOT, sources

KNOWING = {
    "harness/devices.py": "the file that knows devices",
    "harness/precision.py": "TF32's switches have no other name in torch",
    "torchduet/caller.py": "the same switches, put back as the caller had them",
    "harness/backends": "a compiler is for certain devices, which it names",
    "harness/hardware": "a vendor's library and data sheets",
    "runner/cli/upstream": "words that another program's users type",
}


@pytest.mark.parametrize(
    ("text", "kind", "index"),
    [("cpu", "cpu", None), ("cuda", "cuda", None), ("cuda:12", "cuda", 12), ("xpu", "xpu", None)],
)
def test_a_name_is_read_and_written_again(text: str, kind: str, index: int | None) -> None:
    device = devices.named(text)
    assert (device.type, device.index, str(device)) == (kind, index, text)


@pytest.mark.parametrize(
    "text", ["", "gpu", "cpu:0", "mps:0", "xpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA"]
)
def test_other_names_are_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(ValueError, match=r"there is no device called .*; devices are cpu, cuda, xpu"):
        devices.named(text)


def test_what_only_torch_knows_and_what_has_two_names() -> None:
    assert devices.of("meta") == devices.CPU
    assert devices.type_of("hpu:3") == "hpu"  # a record's device is shown, whatever it is
    assert devices.twice(("cuda", "cpu", "cuda:0")) == ("cuda", "cuda:0")
    assert devices.twice(("cuda:1", "cpu", "cuda:0")) is None
    assert devices.twice(("cuda", "cuda")) is None


def test_a_kind_without_counters_says_nothing() -> None:
    counters = (devices.CPU.begin_peak(), devices.CPU.peak_bytes(), devices.CPU.pool_bytes())
    assert (*counters, devices.CPU.busy_s(lambda: None, steps=1, sleep_s=0.0)) == (None,) * 4


def names_cuda(path: Path) -> bool:
    """Whether its code, docstrings and comments aside, has the word: as a name, an attribute or in a text."""
    text = path.read_text(encoding="utf-8")
    if "cuda" not in text:
        return False
    tree = ast.parse(text)
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = {id(node.body[0]) for node in ast.walk(tree) if isinstance(node, scopes) and node.body}
    said |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and id(node) in said}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("cuda", "is_cuda"):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            words = "".join(c if c.isalnum() or c in "_-" else " " for c in node.value).split()
            if "cuda" in words:
                return True
    return False


def test_the_search_sees_code_and_not_docstrings(tmp_path: Path) -> None:
    for text, expected in (
        ('"""cuda:0"""\n# cuda\n', False),
        ("cudagraph_skips = 'cudagraphs'\n", False),
        ("x = tensor.is_cuda\n", True),
        ("import torch\ntorch.cuda.synchronize()\n", True),
        ('x = device == "cuda:1"\n', True),
    ):
        path = tmp_path / "one.py"
        path.write_text(text, encoding="utf-8")
        assert names_cuda(path) is expected, text


def test_no_other_file_names_cuda() -> None:
    known = tuple(KNOWING)
    named = [str(path.relative_to(ROOT)) for path in sources(*ROOMS) if names_cuda(path)]
    assert [name for name in named if not name.startswith(known)] == []
    assert [path for path in known if not any(name.startswith(path) for name in named)] == []
