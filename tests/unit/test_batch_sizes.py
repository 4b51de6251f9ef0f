"""``--batch-size-file``."""

from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.plan.batch_sizes import batch_sizes


def written(folder: Path, text: str) -> Path:
    path = folder / "sizes.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_both_ways_of_writing_and_comments(tmp_path: Path) -> None:
    text = "# A100\nresnet18,64\n\nBertForMaskedLM 8  # half\n  vit , 2\n"
    assert batch_sizes(written(tmp_path, text)) == (("resnet18", 64), ("BertForMaskedLM", 8), ("vit", 2))


@pytest.mark.parametrize(
    "line",
    ["resnet18", "resnet18,many", "resnet18,0", "resnet18,-2", "a,b,3", ",3", ",", f"vit,{'9' * 5000}"],
)
def test_any_other_line_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--batch-size-file: line 2 of .*sizes.txt is not"):
        batch_sizes(written(tmp_path, f"fine,1\n{line}\n"))


@pytest.mark.parametrize(
    ("text", "says"), [("# A100\n\n", "has no line"), ("vit,2\n\nvit 4\n", "line 3 of .* has vit again")]
)
def test_a_file_that_says_nothing_or_two_things(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--batch-size-file: .*{says}"):
        batch_sizes(written(tmp_path, text))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "sizes"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="it is not text"):
        batch_sizes(path)
