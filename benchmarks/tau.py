"""Rows for the table of tau in ``runner/analysis/verdicts/between.py``, from runs with several processes.

python -m benchmarks.tau results/gpu-h200
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.analysis.verdicts.calibration import calibrated
from runner.store.run_folder import RECORDS, read_run


def rows(folders: Sequence[Path]) -> list[str]:
    """A line for each machine, and one for each kind of candidate and mode on it."""
    lines = []
    records = [record for folder in folders for record in read_run(folder / RECORDS).records]
    for calibration in calibrated(records):
        lines += [f"# {calibration.date}: {calibration.conditions}"]
        lines += [
            f'("{tau.kind}", "{tau.mode}"): {tau.sd:.4f},  # [{tau.low:.4f}, {tau.high:.4f}], '
            f"{tau.models} results, {tau.processes} processes{', short steps' if tau.short else ''}"
            for tau in calibration.taus
        ]
    return lines or ["# no result of several processes whose rounds explain less than 1 %"]


if __name__ == "__main__":
    print("\n".join(rows([Path(name) for name in sys.argv[1:]])))
