"""``why.html``: the models of a run by cause, then each explanation; and ``balance.png`` of each job."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from runner.analysis.digits import ms_text
from runner.reports.pages.templates import template
from runner.reports.parts.pictures import new_figure, plain_style, png
from runner.runs.why.explain import Why
from runner.runs.why.words import BALANCE, overview, parts

SIDES = (("eager", "#6E7781"), ("compiled", "#0072B2"))
WIDTH_IN, LINE_IN = 8.0, 0.42


def page(whys: Sequence[Why], pictures: Mapping[str, bytes]) -> bytes:
    """The page. ``pictures``: the balance of each job by its key; a job without a balance has none."""
    text = template("why.html.j2").render(
        sections=[
            ("All models, by cause", "", (overview(whys),)),
            *((why.title, why.plain.record.job.key, tuple(parts(why))) for why in whys),
        ],
        pictures={key: base64.b64encode(picture).decode() for key, picture in pictures.items()},
    )
    return text.encode()


def balance_png(why: Why) -> bytes | None:
    """Two bars for each line of the balance sheet: ms of eager's step and of the compiled step."""
    if not (lines := BALANCE.rows(why)[:-1]):
        return None
    with plain_style():
        figure = new_figure(WIDTH_IN, 0.8 + LINE_IN * len(lines))
        ax = figure.subplots()
        for side, (name, color) in enumerate(SIDES):
            places = [place + (side - 0.5) * 0.36 for place in range(len(lines))]
            values = [both[side] for _, both in lines]
            ax.barh(places, values, height=0.34, color=color, label=name)
            for place, value in zip(places, values, strict=True):
                ax.annotate(f" {ms_text(value)}", (max(value, 0.0), place), va="center", fontsize=7)
        ax.set_yticks(range(len(lines)), [line for line, _ in lines])
        ax.invert_yaxis()
        ax.set_xlabel("ms of one step, under the profiler")
        figure.suptitle(why.title, x=0.01, ha="left", fontsize=10)
        ax.grid(visible=False, axis="y")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SIDES))
        return png(figure)
