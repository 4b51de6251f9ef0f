"""No number of a committed record changes: ``tests/oracle.py`` says what is kept, and how.

``UPDATE_ORACLE=1 pytest -n0 -s -m "" tests/unit/test_oracle.py`` writes the numbers anew and prints how many
differed, by field. Do this in a commit that touches nothing else and says why they changed.
"""

import os
from collections import Counter

import pytest

from tests import oracle

QUICK = "start-up-cpu"


@pytest.mark.parametrize(
    "folder", [pytest.param(n, marks=[pytest.mark.slow] if n != QUICK else []) for n in oracle.folders()]
)
def test_the_numbers_of_the_committed_records_stay(folder: str) -> None:
    now = oracle.numbers(folder)
    if not os.environ.get("UPDATE_ORACLE"):
        differs = list(oracle.differences(oracle.kept(folder), now))
        assert not differs, f"{len(differs)} values differ; the first: {differs[0]}"
        return
    is_new = not (oracle.KEPT / f"{folder}.json.xz").exists()
    differs = [] if is_new else list(oracle.differences(oracle.kept(folder), now))
    if is_new or differs:
        oracle.keep(folder, now)
        fields = Counter(line.partition(": was ")[0].rpartition(", ")[2] for line in differs)
        print(f"{folder}: {len(differs)} values differ; by field: {dict(fields.most_common())}")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"a": {"n": 3, "speedup": 1.5 * (1 + 1e-10)}}, []),
        ({"a": {"n": 3, "speedup": 1.5 * (1 + 1e-8)}}, ["a, speedup: was 1.5, is 1.500000015"]),
        ({"a": {"n": 3.0, "speedup": 1.5}}, ["a, n: was 3, is 3.0"]),
        ({"a": {"speedup": 1.5}, "b": {}}, ["a, n: was 3, is missing", "b: was missing, is here"]),
    ],
)
def test_the_oracle_names_what_differs(now: dict[str, dict[str, float]], said: list[str]) -> None:
    assert list(oracle.differences({"a": {"n": 3, "speedup": 1.5}}, now)) == said


def test_every_file_of_the_oracle_belongs_to_a_folder_with_records() -> None:
    assert {path.name.removesuffix(".json.xz") for path in oracle.KEPT.iterdir()} == set(oracle.folders())
