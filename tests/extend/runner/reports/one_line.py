"""one_line.txt: the averages of a run in one line, for a chat."""

from __future__ import annotations

from collections.abc import Mapping

from runner.analysis.digits import estimate_text
from runner.analysis.results import Summary
from runner.names import plain

FORMATS = ("txt",)  # the word of --format that selects this report


def render(summary: Summary) -> Mapping[str, bytes]:
    means = [
        f"{plain(group.compiler)} {estimate_text(group.mean.over)}"
        for group in summary.groups
        if group.mean.over is not None
    ]
    return {"one_line.txt": f"{', '.join(means) or 'nothing timed'}\n".encode()}
