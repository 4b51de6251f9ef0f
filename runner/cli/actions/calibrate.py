"""``--calibrate``: measures how much speedups vary between processes of this machine, for later runs.

It is an ordinary run of a few small models in several processes; flags of a run may change it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.actions.measure import MeasureRequest, measured, planned
from runner.cli.exit_codes import FAILURES, INTERRUPTED
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS

if TYPE_CHECKING:
    from runner.reports.parts.grid import Table
    from runner.store.calibrations import Calibration

FEWEST_PROCESSES = 3
FLAG = flag(
    "--calibrate",
    group=Group.ACTIONS,
    help="measure how much speedups vary between processes of this machine (10 to 40 minutes); later runs "
    "use it",
)
FLAGS = (FLAG,)
NOTHING = (
    "error: nothing was calibrated: the rounds are too noisy (they explain over 1 % in the median model), or "
    "no candidate passed; --doctor says what disturbs this machine, and -n 400 narrows the noise"
)
STOPPED = "note: nothing was calibrated, and --resume only measures: begin again with --calibrate"


DEFAULTS = {
    "suites": ["tiny_gpt,timm_models"],
    "only": ["MLP_shakespeare_8x128,GPT_150k,NanoGPT_shakespeare_96,lcnet_050,regnety_002"],
    **dict.fromkeys(("training", "inference", "performance"), True),
    "compilers": ["eager,aot_eager,inductor"],
    "batch_size": "2",  # longer steps have as much noise, and take more time
    "processes": "4",
    "ci_width": "1.5%",  # so that the rounds explain less than is accepted
    "protocol": ["min_rounds=20", "max_rounds=200"],
}
"""Values by ``Flag.key``."""
INSTEAD = (
    ({"suites", "model"}, {"suites", "only"}),
    ({"filter"}, {"only"}),
    ({"training", "inference", "generate"}, {"training", "inference"}),
    ({flag.key for flag in COMPILERS}, {"compilers"}),
    ({"suites", "model", "batch_size_file", "sweep"}, {"batch_size"}),
    ({"repeat"}, {"ci_width", "protocol"}),
)
"""Flags, and the defaults that they replace beside their own."""


def parse(given: Given) -> MeasureRequest:
    replaced = {key for flags, keys in INSTEAD if flags & given.keys() for key in keys}
    typed = {**{key: value for key, value in DEFAULTS.items() if key not in replaced}, **given}
    request = planned(typed)
    config = request.config
    if config.protocol.processes < FEWEST_PROCESSES:
        raise UsageError(f"{FLAG.long} needs --processes={FEWEST_PROCESSES} or more, a fixed number")
    if request.where.executor != "local" or config.environments or config.baseline_dtype is not None:
        raise UsageError(
            f"{FLAG.long} measures this machine, interpreter and precision; leave --executor, --envs and "
            "--baseline-dtype out"
        )
    return request


def perform(request: MeasureRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.analysis.verdicts.calibration import calibrated
    from runner.reports.parts.grid import grid_of, say
    from runner.store.calibrations import calibrations_path, keep, read_calibrations

    console, path = Console(), calibrations_path()
    read_calibrations(path)  # a file that cannot be used is named before minutes of work
    code, folder = measured(request, argv, console)
    if code == INTERRUPTED:
        print(STOPPED, file=sys.stderr)
    if folder is None or code == INTERRUPTED:
        return code
    new = calibrated(folder.read().records)
    if not new:
        print(NOTHING, file=sys.stderr)
        return FAILURES
    keep(FLAG.long, new, path)
    for calibration in new:
        table = _table(calibration)
        say(console, f"\n{table.title}", "bold")
        console.print(grid_of(console, table, lambda *_: ""))
    say(console, f"Runs under these conditions use it: {path}")
    return code


def _table(calibration: Calibration) -> Table:
    from runner.analysis.digits import share_text
    from runner.analysis.verdicts.between import SHORT_STEP_S
    from runner.reports.parts.grid import TextColumn, table_of
    from runner.store.calibrations import Tau

    short = f"< {SHORT_STEP_S * 1e3:.0f} ms"
    columns: list[TextColumn[Tau]] = [
        TextColumn("mode", lambda tau: tau.mode),
        TextColumn("step", lambda tau: short if tau.short else "other"),
        TextColumn("candidate", lambda tau: tau.kind),
        TextColumn("tau, 95 %", lambda tau: f"{share_text(tau.low)} to {share_text(tau.high)}"),
        TextColumn("assumed", lambda tau: share_text(tau.sd), number=True),
        TextColumn("models", lambda tau: str(tau.models), number=True),
        TextColumn("processes", lambda tau: str(tau.processes), number=True),
    ]
    where = ", ".join(f"{name} {value}" for name, value in calibration.conditions.items())
    title = f"Standard deviation of a speedup between processes ({where})"
    return table_of(title, calibration.taus, columns)
