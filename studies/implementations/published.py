"""The published results of study B, for comparison with ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Implementation(NamedTuple):
    """A row of the table on addition (an A100 with 40 GB)."""

    train_loss: float
    test_loss: float
    accuracy: float
    micros: float  # per example
    seconds: float

    @property
    def examples(self) -> float:
        """How many examples the training saw."""
        return 1e6 * self.seconds / self.micros


ADDITION: Mapping[tuple[str, float], Implementation] = {
    ("HuggingFaceGPT", 1e-3): Implementation(0.344, 0.367, 0.852, 15.1, 60.2),
    ("HuggingFaceGPT", 1e-4): Implementation(1.420, 1.431, 0.461, 15.2, 60.9),
    ("HuggingFaceGPT", 1e-2): Implementation(1.352, 1.385, 0.460, 15.5, 60.3),
    ("MLP", 1e-3): Implementation(0.036, 0.035, 1.000, 1.06, 2.2),
    ("MLP", 1e-4): Implementation(0.101, 0.108, 0.999, 1.11, 17.0),
    ("MLP", 1e-2): Implementation(0.001, 0.001, 1.000, 1.28, 1.3),
    ("NanoGPT", 1e-3): Implementation(1.365, 1.387, 0.460, 23.3, 62.0),
    ("NanoGPT", 1e-4): Implementation(1.728, 1.720, 0.412, 23.7, 60.7),
    ("NanoGPT", 1e-2): Implementation(0.117, 0.122, 0.956, 23.4, 60.1),
    ("TLTransformer", 1e-3): Implementation(1.382, 1.384, 0.463, 17.3, 60.3),
}


class Text(NamedTuple):
    """A row of the table on Shakespeare. This project knows only the test losses of the measured columns."""

    learning_rate: float
    batch: int
    budget_s: float
    test_loss: float
    note: str = ""


ON_TRAINING_BATCH = "of a training batch"
SHAKESPEARE: Mapping[str, Text] = {
    "MLP_shakespeare_16x256": Text(1e-2, 2048, 300, 2.18),
    "MLP_shakespeare_8x128": Text(1e-2, 2048, 300, 2.14),
    "TLTransformer_shakespeare_64": Text(1e-2, 1024, 300, 1.61),
    "TLTransformer_shakespeare_96": Text(1e-2, 1024, 300, 1.65),
    "NanoGPT_shakespeare_64": Text(1e-2, 2048, 300, 1.81, ON_TRAINING_BATCH),
    "NanoGPT_shakespeare_96": Text(1e-2, 2048, 300, 1.47, ON_TRAINING_BATCH),
}
"""By case, in the order of the table. The losses are matched to the sizes by their order in the source."""
