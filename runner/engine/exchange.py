"""Export and import of the reference environment's weights, and cross-environment parity."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.engine.worker_session import CallFailed, CandidateState, WorkerSession

FOLDER = "exchange-"
WEIGHTS = "weights.pt"


class Exchange:
    """The folder into which the reference environment's session exports, for the other sessions to import."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.reference: WorkerSession | None = None
        self.note = ""  # why the other sessions have their own weights and inputs

    @property
    def weights(self) -> Path | None:
        """The file that the other sessions import; None if there is no export."""
        return None if self.reference is None or self.note else self._folder / WEIGHTS

    def export(self, reference: WorkerSession) -> None:
        """Exports the reference's weights. Raises ``CallFailed`` if the worker is lost."""
        try:
            reference.export(self._folder / WEIGHTS)
        except CallFailed as failed:
            if failed.lost:
                raise
            self.note = f"has its own weights and inputs, because the export failed: {failed}"
        self.reference = reference

    def cross_parity(self, session: WorkerSession, notes: tuple[str, ...]) -> CandidateState:
        """Compares the session's eager with the reference environment's. Raises ``CallFailed``."""
        notes = (*notes, self.note) if self.note else notes
        return session.cross_parity(notes)


@contextmanager
def exchange_in(folder: Path) -> Iterator[Exchange]:
    """An exchange in a temporary folder. Deletes first what a killed run left in ``folder``."""
    for leftover in folder.glob(f"{FOLDER}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=FOLDER, dir=folder) as name:
        yield Exchange(Path(name))
