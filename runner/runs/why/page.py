"""What --why and --tune say on the screen, in why.html, why.md and why.json, and in the files of each job."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.analysis.digits import ms_text
from runner.reports.console import Writer
from runner.reports.pages.templates import template
from runner.reports.parts.grid import say
from runner.reports.parts.pictures import new_figure, plain_style, png
from runner.runs.why.asking import ASKED
from runner.runs.why.explain import NoTimes, Why
from runner.runs.why.looked import TRACE
from runner.runs.why.words import BALANCE, as_json, cause_lines, markdown, overview, parts, show, verdict_text
from runner.store.run_folder import CASES, RunFolder, read_run_json

if TYPE_CHECKING:
    from rich.console import Console

    from harness.schema import Record

SIDES = (("eager", "#6E7781"), ("compiled", "#0072B2"))
WIDTH_IN, LINE_IN = 8.0, 0.42
ASKS = "asks"  # in run.json
FILES = {
    "fx_graph_runnable": "graph-{}.py",
    "inductor_output_code": "kernels-{}.py",
    "inductor_provenance_tracking_kernel_stack_traces": "kernel-lines-{}.json",
}
_ENTRY = re.compile(r"^V\d{4} [^\]]*\] (\{.*\})\n((?:\t.*\n?)*)", re.MULTILINE)
_OF_THIS_MACHINE = re.compile(
    r"^os\.environ\['(?:TORCH_TRACE|\w*CACHE_DIR|_TORCHINDUCTOR\w*)'\].*\n", re.MULTILINE
)
FACTS = ("torch", "python", "cpu", "threads")


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


def hand_over(folder: Path, why: Why) -> None:
    """Writes graphs and kernels as scripts without this program, and the text of an issue.

    ``folder``: the job's, with torch's trace (``TORCH_TRACE``) of the copy for looking.
    """
    folder.mkdir(parents=True, exist_ok=True)  # of a run without its logs
    count: Counter[str] = Counter()
    for log in sorted((folder / TRACE).glob("*.log")):
        for head, payload in _ENTRY.findall(log.read_text(encoding="utf-8", errors="replace")):
            entry = json.loads(head)
            name = entry.get("artifact", {}).get("name") or next(iter(entry), "")
            if name in FILES:
                text = _OF_THIS_MACHINE.sub("", re.sub(r"^\t", "", payload, flags=re.MULTILINE))
                (folder / FILES[name].format(count[name])).write_text(text, encoding="utf-8")
                count[name] += 1
    (folder / "issue.md").write_text(issue(why), encoding="utf-8")


def issue(why: Why) -> str:
    """The text of an issue: what is slower, the tested cause, where it was measured, and how to repeat it."""
    record = why.plain.record
    facts = (f"{key} {record.environment[key]}" for key in FACTS if record.environment.get(key) is not None)
    causes = "\n".join(f"- {line}" for line in cause_lines(why))
    return f"""# {why.title}: {verdict_text(why)}

{causes}

Measured in pairs of eager and compiled steps, {why.plain.n} rounds; {", ".join(facts)}.
Other causes are excluded: {", ".join(why.excluded)}.

To repeat the measurement: `{record.reproduce}`

`graph-*.py` are graphs as scripts that need torch alone, `kernels-*.py` is the generated code.
"""
