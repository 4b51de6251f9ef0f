"""Names of devices, without torch; and that one file alone knows them."""

import ast
import textwrap
from pathlib import Path

import pytest

from harness import devices
from tests import device_lines

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "runner", "suites", "studies", "torchduet")
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
    [("cpu", "cpu", None), ("cuda", "cuda", None), ("cuda:12", "cuda", 12), ("xpu:0", "xpu", 0)],
)
def test_a_name_is_read_and_written_again(text: str, kind: str, index: int | None) -> None:
    device = devices.named(text)
    assert (device.type, device.index, str(device)) == (kind, index, text)


@pytest.mark.parametrize(
    "text", ["", "gpu", "cpu:0", "mps:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA"]
)
def test_other_names_are_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(ValueError, match=r"there is no device called .*; devices are cpu, cuda, xpu, mps"):
        devices.named(text)


def test_what_only_torch_knows_is_taken_for_a_cpu() -> None:
    assert devices.of("meta") == devices.CPU
    assert devices.type_of("hpu:3") == "hpu"  # a record's device is shown, whatever it is


def test_one_device_with_two_names_is_found() -> None:
    assert devices.twice(("cuda", "cpu", "cuda:0")) == ("cuda", "cuda:0")
    assert devices.twice(("cuda:1", "cpu", "cuda:0")) is None
    assert devices.twice(("cuda", "cuda")) is None


def test_a_kind_without_counters_says_nothing() -> None:
    counters = (devices.CPU.begin_peak(), devices.CPU.peak_bytes(), devices.CPU.pool_bytes())
    assert (*counters, devices.CPU.busy_s(lambda: None, steps=1, sleep_s=0.0)) == (None,) * 4


def test_what_nobody_has_tried_is_announced() -> None:
    assert devices.TRIED == ("cpu", "cuda")
    assert devices.UNTRIED == ("xpu", "mps")


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
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    named = [str(path.relative_to(ROOT)) for path in paths if names_cuda(path)]
    assert [name for name in named if not name.startswith(known)] == []
    assert [path for path in known if not any(name.startswith(path) for name in named)] == []


# -- which statements make coverage-devices looks at -------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""The device cuda."""\n# a GPU\nx = 1\n', []),
        ("if device == 1:\n    x = 1\nelse:\n    y = 2\n", [range(1, 2)]),
        ("if x:\n    y = device\n", [range(2, 3)]),
        ("def f(x):\n    '''On the GPU.'''\n    return x.cuda()\n", [range(3, 4)]),
        ("x = f(\n    1,\n    a='cuda:1',\n)\n", [range(1, 4)]),
        ("@on(device)\ndef f():\n    pass\n", [range(1, 3)]),
        ("import torch.cuda\nfrom x import nvml\n", [range(1, 2), range(2, 3)]),
        ("try:\n    x = 1\nexcept DeviceLost:\n    y = 1\n", [range(3, 4)]),
        ("try:\n    x = device\nfinally:\n    pass\n", [range(2, 3)]),
        ("if TYPE_CHECKING:\n    import torch.cuda\n", []),
        ("x = 'compression'\n", []),
        ("x = torch.mps\n", [range(1, 2)]),
    ],
)
def test_a_statement_is_looked_at_where_its_own_words_mention_a_device(
    tmp_path: Path, source: str, expected: list[range]
) -> None:
    path = tmp_path / "one.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    assert device_lines.spans_of(path) == expected


@pytest.mark.slow
def test_all_of_the_file_that_knows_devices_is_looked_at() -> None:
    by_path = device_lines.spans()
    (whole,) = (
        spans for path, spans in by_path.items() if path.name == "devices.py" and "probes" not in path.parts
    )
    assert len(whole) > 200
    assert {path.parts[len(device_lines.ROOT.parts)] for path in by_path} == {*device_lines.FOLDERS}
