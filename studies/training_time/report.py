"""Study A from its records: its times and distances from eager, beside what its author published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean, median
from typing import Any

from harness.protocol import Protocol
from runner.analysis.digits import MISSING, estimate_text
from runner.analysis.results import PairedEstimate
from runner.analysis.statistics import paired_speedup
from runner.reports.parts.pictures import COLORS, new_figure, pictures, plain_style
from runner.reports.parts.sections import environment_line
from studies.journal import CUT_SHORT, PASS, Line, of_kind
from studies.options import PRECISIONS, tables
from studies.report import Expectation, Report, beyond, expectation_table, part, published, table
from studies.training_time.chunks import FIRST_STEPS

EAGER = "eager"
REFERENCE = f"float32 {EAGER}"
HEADS, LABELS = tables("words")["precisions"], tables("words")["modes"]
WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = 1 + Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
ASTRAY = "DOES NOT FOLLOW"
FOLLOWING = ("precision", "variant", "distance", "spread", "verdict")


class Training:
    """A variant with one seed; without an outcome it was ``CUT_SHORT``. Times in seconds.

    ``compile_s``: of the preparation, and of the first steps beyond that of as many later steps. ``steps``:
    of a step, by the first step of its chunk, without the first steps. ``losses``: on held-out text, by the
    step after which they were evaluated.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        chunks = of_kind(lines, "chunk")
        outcome = next(iter(of_kind(lines, "outcome")), {"status": CUT_SHORT, "message": ""})
        self.status: str = outcome["status"]
        self.message: str = outcome["message"] or ""
        self.steps = {c["first"]: c["seconds"] / c["steps"] for c in chunks if c["first"] >= FIRST_STEPS}
        self.losses = {c["first"] + c["steps"] - 1: c["valid"] for c in chunks if c["valid"] is not None}
        step_s = median(self.steps.values()) if self.steps else 0.0
        early = [c["seconds"] - c["steps"] * step_s for c in chunks if c["first"] < FIRST_STEPS]
        extra_s = max(0.0, sum(early)) if self.steps else 0.0
        self.compile_s = sum(line["prepare_s"] for line in of_kind(lines, "prepared")) + extra_s
        self.run_s = sum(c["seconds"] for c in chunks) - extra_s


class Variant:
    """A variant over all seeds. ``compile_s``: of the first seed, whose caches were empty. ``run_s``: the
    median of all seeds. None if no training finished. ``failed``: the first that did not."""

    def __init__(self, name: str, trainings: Mapping[int, Training]) -> None:
        self.name, self.trainings = name, trainings
        self.precision, _, self.mode = name.partition(" ")
        self.finished = {seed: t for seed, t in trainings.items() if t.status == PASS}
        self.failed = next((t for t in trainings.values() if t.status != PASS), None)
        times = [(t.compile_s, t.run_s) for t in self.finished.values()]
        self.compile_s = times[0][0] if times else None
        self.run_s = median(run_s for _, run_s in times) if times else None
        self.wall_s = times[0][0] + median(run_s for _, run_s in times) if times else None


Variants = Mapping[str, Variant]


def variants_of(lines: Sequence[Line]) -> Variants:
    """The variants of a run, by name."""
    own = defaultdict[tuple[Any, Any], list[Line]](list)
    for line in lines[1:]:
        own[line.get("variant"), line.get("seed")].append(line)
    names, seeds = lines[0]["variants"], range(lines[0]["sizes"]["seeds"])
    return {name: Variant(name, {seed: Training(own[name, seed]) for seed in seeds}) for name in names}


def paired(slow: Variant | None, fast: Variant) -> PairedEstimate | None:
    """The speedup of the steps of ``fast`` over those of ``slow``: same seed, same steps."""
    left, right = (
        {(seed, first): step_s for seed, training in side.items() for first, step_s in training.steps.items()}
        for side in (slow.finished if slow else {}, fast.finished)
    )
    both = [place for place in right if place in left]
    return paired_speedup([left[place] for place in both], [right[place] for place in both]) if both else None


def following(variant: Variant, eager: Variant | None) -> tuple[float | None, float | None]:
    """The distance from eager and the spread of eager over its seeds, as root mean square differences of
    held-out losses, in nats; without step 0, before which nothing was learned."""
    ours, theirs = (
        {seed: t.losses for seed, t in side.trainings.items() if t.status in {PASS, CUT_SHORT}}
        if side
        else {}
        for side in (variant, eager)
    )
    return (
        _root_mean_square((ours[seed], theirs[seed]) for seed in ours if seed in theirs),
        _root_mean_square(combinations(theirs.values(), 2)),
    )


def _root_mean_square(pairs: Iterable[tuple[dict[int, float], dict[int, float]]]) -> float | None:
    squares = [(a[step] - b[step]) ** 2 for a, b in pairs for step in a if step and step in b]
    return fmean(squares) ** 0.5 if squares else None


def render(lines: Sequence[Line]) -> Report:
    study, variants = lines[0], variants_of(lines)
    sizes, text, kernels = study["sizes"], study["text"], study.get("attention_kernels")  # older: None
    real = text["name"] == "shakespeare"
    judged = real and not study.get("options", {}).get("quick")
    about = (
        f"{study['parameters']:,} parameters; {sizes['steps']} steps of "
        f"{sizes['batch']} x {sizes['block']} characters, {sizes['seeds']} seeds; "
        f"text: {text['name']}, {text['characters']:,} characters"
        f"{'' if real else ' - NOT Shakespeare: figures of a trial run'}. "
        f"{environment_line(study['environment'])}."
    )
    if kernels is not None:
        about += f" Fused attention kernels that torch may choose: {', '.join(kernels) or 'none'}."
    followed = {v.name: _followed(variants, v) for v in variants.values() if v.mode != EAGER}
    broken = {v.name: v.failed for v in variants.values() if v.failed}
    return Report(
        blocks=[
            "# Study A: training time of a small GPT",
            about,
            *part("wall", _by_precision(variants, _time_cell)),
            *part("steps", _by_precision(variants, partial(_steps_cell, variants.get(REFERENCE)))),
            *part("ratios", _side_by_side(variants)),
            *part("conclusions", expectation_table(conclusions(variants), first="of", judged=judged)),
            *part("published", _published()),
            *part("following", table(FOLLOWING, followed.values())),
            "\n".join(f"- {name}: {broke.status}. {broke.message}" for name, broke in broken.items()),
        ],
        files=_curves([*variants.values()]),
        failures=[
            *(f"{name}: {broke.status}" for name, broke in broken.items()),
            *(f"{name}: {ASTRAY}" for name, cells in followed.items() if cells[-1] == ASTRAY),
        ],
    )


def _named(variant: Variant) -> list[str]:
    return [HEADS[variant.precision], LABELS.get(variant.mode, variant.mode)]


def _by_precision(variants: Variants, cell: Callable[[Variant], str]) -> str:
    precisions = [name for name in PRECISIONS if name in {row.precision for row in variants.values()}]
    cells = {name: cell(row) for name, row in variants.items()}
    return table(
        ["", *(HEADS[name] for name in precisions)],
        [
            [LABELS.get(mode, mode), *(cells.get(f"{name} {mode}", MISSING) for name in precisions)]
            for mode in dict.fromkeys(row.mode for row in variants.values())
        ],
    )


def _time_cell(row: Variant) -> str:
    times = [minutes_text(s) for s in (row.wall_s, row.compile_s, row.run_s) if s is not None]
    return "{} = {} + {}".format(*times) if times else row.failed.status if row.failed else PASS


def _steps_cell(eager: Variant | None, row: Variant) -> str:
    return "1" if row is eager else estimate_text(paired(eager, row))


def minutes_text(seconds: float) -> str:
    """``5:31``. Below a minute with tenths, ``0:07.4``, so that short runs can be distinguished."""
    if seconds < 60:
        tenths = round(seconds * 10)
        return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _side_by_side(variants: Variants) -> str:
    """Ratios of wall times, and the published ratios of several lists."""
    times: dict[str, dict[str, float]] = {}  # list of the source -> variant -> seconds
    heads = ["precision", "variant", "ours", "ours, without compiling"]
    for row in published("training_time"):
        for name in PRECISIONS:
            minutes, _, seconds = row[name].partition(":")
            if minutes and row["mode"]:
                times.setdefault(row["group"], {})[f"{name} {row['mode']}"] = 60 * int(minutes) + int(seconds)
        heads += [f"{row['variant']}, {row['group']} (published)"] if row["mode"] == EAGER else []
    eager = variants.get(REFERENCE)
    lines = []
    for variant in variants.values():
        ratios = (
            _divided(eager.wall_s if eager else None, variant.wall_s),
            _divided(eager.run_s if eager else None, variant.run_s),
            *(_divided(of_list[REFERENCE], of_list.get(variant.name)) for of_list in times.values()),
        )
        lines.append([*_named(variant), *(MISSING if value is None else f"{value:.2f}" for value in ratios)])
    return table(heads, lines)


def _divided(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow and fast else None


def _published() -> str:
    lines = []
    for row in published("training_time"):
        note = "" if row["mode"] else " (published, not measured here)"
        times = (row[name] or MISSING for name in PRECISIONS)
        lines.append([f"{row['group']}: {row['variant']}{note}", *times])
    return table(["", *HEADS.values()], lines)


def _followed(variants: Variants, variant: Variant) -> list[str]:
    """Distance from eager, the spread of eager, and whether the variant follows eager."""
    distance, spread = following(variant, variants.get(f"{variant.precision} {EAGER}"))
    texts = (MISSING if nats is None else f"{nats:.2g}" for nats in (distance, spread))
    if distance is None or spread is None:
        verdict = "did not train" if distance is None else "unknown: takes two seeds or more"
    else:
        verdict = "follows" if distance <= spread else ASTRAY
    return [*_named(variant), *texts, verdict]


def conclusions(variants: Variants) -> list[Expectation]:
    """That smaller types help, and compiling: for the steps alone, and for whole runs."""
    precisions = list(dict.fromkeys(row.precision for row in variants.values()))
    claims = [
        (f"smaller types help: {HEADS[name]}, {mode}", f"float32 {mode}", f"{name} {mode}")
        for mode in (EAGER, "compile")
        for name in precisions
        if name != "float32"
    ]
    claims += [(f"compiling helps: {HEADS[p]}", f"{p} {EAGER}", f"{p} compile") for p in precisions]
    return [
        Expectation(title=title, expected=claim, seen=text or "not both were timed", holds=holds)
        for claim, slow, fast in claims
        if slow in variants and fast in variants
        for title, text, holds in _compared(variants[slow], variants[fast])
    ]


def _compared(slow: Variant, fast: Variant) -> Iterator[tuple[str, str, str]]:
    steps, factor = paired(slow, fast), _divided(slow.wall_s, fast.wall_s)
    ends = (steps.low, steps.high) if steps else (None, None)
    yield "steps", estimate_text(steps) if steps else "", beyond(*ends, STEP_NOISE)
    yield "whole run", f"{factor:.2f}x" if factor else "", beyond(factor, factor, WALL_NOISE)


def _curves(variants: Sequence[Variant]) -> Mapping[str, bytes]:
    """Losses on held-out text, overlaid; a panel for each precision, a line for each seed."""
    precisions, modes = ([*dict.fromkeys(getattr(v, of) for v in variants)] for of in ("precision", "mode"))
    with plain_style():
        figure = new_figure(5.5 * len(precisions), 4.0)
        panels = figure.subplots(1, len(precisions), squeeze=False, sharey=True)[0]
        for panel, precision in zip(panels, precisions, strict=True):
            for variant in (v for v in variants if v.precision == precision):
                place = modes.index(variant.mode)
                curves = [training.losses for training in variant.trainings.values() if training.losses]
                style = {"color": COLORS[place % len(COLORS)], "linewidth": max(0.6, 6.0 - 1.4 * place)}
                for curve in curves:  # equal curves lie inside each other
                    label = variant.mode if curve is curves[0] else None
                    panel.plot([*curve], [*curve.values()], label=label, **style)
            panel.set_title(precision)
            panel.set_xlabel("step")
            if panel.lines:
                panel.legend()
        panels[0].set_ylabel("loss on held-out text, nats; a line for each seed")
    return pictures({"loss_curves.png": figure})
