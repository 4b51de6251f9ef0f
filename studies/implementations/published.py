"""The published results of study B, beside which ours are put.

``addition.csv``: an A100 with 40 GB; ``micros`` are per example. ``shakespeare.csv``: this project knows only
the test losses of the measured columns; they are matched to the sizes by their order in the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def addition() -> pd.DataFrame:
    """By model and learning rate; ``examples``: how many the training saw."""
    table = _read("addition").set_index(["model", "learning_rate"])
    return table.assign(examples=1e6 * table["seconds"] / table["micros"])


def shakespeare() -> pd.DataFrame:
    """By case of suite tiny_gpt."""
    return _read("shakespeare").fillna({"note": ""}).set_index("case")


def _read(task: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(Path(__file__).parent / f"{task}.csv")
