"""Which statements ``make coverage-devices`` looks at."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests import device_lines


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


def test_all_of_the_file_that_knows_devices_is_looked_at() -> None:
    found = device_lines.spans()
    (whole,) = (
        spans for path, spans in found.items() if path.name == "devices.py" and "probes" not in path.parts
    )
    assert len(whole) > 200
    assert {path.parts[len(device_lines.ROOT.parts)] for path in found} == {*device_lines.FOLDERS}
