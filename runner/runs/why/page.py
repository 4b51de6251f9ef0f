"""What --why and --tune say: on the screen, in why.html, why.md and why.json; and balance.png of each job."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from runner.analysis.digits import ms_text
from runner.reports.console import Writer
from runner.reports.pages.templates import template
from runner.reports.parts.grid import say
from runner.reports.parts.pictures import new_figure, plain_style, png
from runner.runs.why.asking import ASKED
from runner.runs.why.explain import NoTimes, Why
from runner.runs.why.handover import hand_over
from runner.runs.why.words import BALANCE, as_json, markdown, overview, parts, show
from runner.store.run_folder import CASES, RunFolder, read_run_json

if TYPE_CHECKING:
    from rich.console import Console

    from harness.schema import Record

SIDES = (("eager", "#6E7781"), ("compiled", "#0072B2"))
WIDTH_IN, LINE_IN = 8.0, 0.42
ASKS = "asks"  # in run.json


def asked_in(folder: RunFolder) -> str:
    """``why`` or ``tune``, if the run is one of these; else ""."""
    with suppress(OSError, ValueError):
        return str(read_run_json(folder.path).get(ASKS, ""))
    return ""


def say_why(folder: RunFolder, records: Sequence[Record], console: Console, unfinished: str = "") -> bool:
    """Prints the explanations and writes their files. Whether every model of the plan has one.

    ``records``: of the run's processes. ``unfinished``: a sentence about what is not measured yet.
    """
    asks, jobs = asked_in(folder), folder.jobs()
    whys: list[Why] = []
    for job in jobs:
        case = folder.path / CASES / job.key
        own = [record for record in records if record.job.key == job.key]
        try:
            why = ASKED[asks][1](job, own, partial(say, console))
        except NoTimes as error:
            say(console, f"{job.case.name}: {error}; the log is in {case}")
            continue
        hand_over(case, why)
        show(why, console)
        if asks == "tune":
            failed = f"it is {why.plain.status.value}, so no setting is compared with it"
            reason = "no setting wins with parity" if why.plain.passed else failed
            say(console, f"Keep: {why.winner.setting if why.winner else f'the plain candidate: {reason}.'}")
        whys.append(why)
    if len(whys) > 1:
        Writer(console, "why.md").table(overview(whys))
    pictures = {why.plain.record.job.key: drawn for why in whys if (drawn := balance_png(why))}
    of_jobs = {f"{CASES}/{key}/balance.png": picture for key, picture in pictures.items()}
    texts = {"why.md": markdown(whys), "why.json": json.dumps(as_json(whys), indent=1) + "\n"}
    pages = {"why.html": page(whys, pictures), **{name: text.encode() for name, text in texts.items()}}
    folder.write_derived(of_jobs | pages)
    if unfinished:
        say(console, unfinished)
    say(console, f"\nwhy.html, why.md, why.json and the records: {folder.path}")
    return len(whys) == len(jobs)


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
