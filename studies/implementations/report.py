"""Study B from its records: its tables beside the published ones, the claims of its source, and curves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

import pandas as pd

from runner.analysis.digits import MISSING, significant
from runner.reports.parts.pictures import COLORS, LINES, new_figure, pictures, plain_style
from runner.reports.parts.sections import environment_line
from studies.corpus import SIZES
from studies.journal import CUT_SHORT, PASS, Line, of_kind
from studies.options import LEFT_DIGITS, tables
from studies.report import (
    NOT_SHOWN,
    OPEN,
    Expectation,
    Judged,
    Report,
    expectation_table,
    part,
    published,
    span,
    table,
    verdict,
)

ANOTHER_TASK = "NOT the same task: the published questions are additions of three digits."
MORE = {"num_parameters": ",", "train_accuracy": ".3f", "inference_micros": ""}
MORE_HEADS = ("parameters", "train accuracy", "inference, µs")
"""Columns that the published tables do not have."""
SPLIT = "{characters:,} characters, {distinct} distinct; the last {held_out:,} are held out."
LEVELS = (0.5, 0.9, 0.995)
SOLVED = 0.995
TASKS = {
    "addition": ("HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer"),
    "shakespeare": ("MLP", "TLTransformer", "NanoGPT"),
}
"""The models of each published table, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One training. ``num_parameters`` is None if the model could not be built. ``points``: evaluations."""

    variant: str
    task: str
    case: str
    model: str
    learning_rate: float
    batch: int
    num_parameters: int | None
    status: str
    message: str | None
    points: Sequence[Line]

    @property
    def name(self) -> str:
        return f"{self.model} {self.learning_rate:g}"

    @property
    def micros(self) -> float | None:
        """Microseconds per example, averaged over the training."""
        last = self.points[-1] if self.points else None
        return 1e6 * last["seconds"] / (last["step"] * self.batch) if last else None

    @property
    def inference_micros(self) -> float | None:
        """Microseconds per held-out example, without gradients: the median of the evaluations."""
        times = [
            p["inference_micros"] for p in self.points if "inference_micros" in p
        ]  # not in older records
        return median(times) if times else None

    def reached(self, accuracy: float) -> Line | None:
        """The first evaluation that reached this accuracy on held-out examples."""
        return next((point for point in self.points if point["test_accuracy"] >= accuracy), None)

    def accuracy_at(self, seconds: float = math.inf) -> float:
        """The best accuracy of the evaluations up to the first after ``seconds``."""
        later = (place for place, point in enumerate(self.points) if point["seconds"] >= seconds)
        return max(
            float(point["test_accuracy"]) for point in self.points[: next(later, len(self.points)) + 1]
        )

    def numbers(self) -> dict[str, Any]:
        """A line of results.csv."""
        facts = {**asdict(self), **(self.points[-1] if self.points else {})}
        facts |= {"steps": facts.get("step"), "train_time_in_seconds": facts.get("seconds")}
        facts |= {"inference_micros": self.inference_micros, "time_per_example_in_micros": self.micros}
        reached = {
            f"{what}_to_{level:g}": (self.reached(level) or {}).get(name)
            for level in LEVELS
            for what, name in (("steps", "step"), ("seconds", "seconds"))
        }
        columns = tables("words")["results"]["columns"]
        return {**{name: facts.get(name) for name in columns}, **reached, "status": self.status}


def fitted(lines: Sequence[Line]) -> list[Fitted]:
    """The trainings with an outcome, in the order of the published tables. A killed training has none."""
    points = defaultdict[str, list[Line]](list)
    for line in of_kind(lines, "point"):  # a loss that was not finite is null there
        lost = {name: math.nan for name, value in line.items() if value is None and "loss" in name}
        points[line["variant"]].append({**line, **lost})
    fits = []
    for line in of_kind(lines, "outcome"):
        facts = {"num_parameters": None, **line, "points": points[line["variant"]]}
        fits.append(Fitted(**{field.name: facts[field.name] for field in fields(Fitted)}))
    return sorted(fits, key=lambda f: place(f.task, f.model))


def place(task: str, model: str) -> tuple[int, int]:
    """The place of a task and a model in the published tables. Others are last."""
    models = TASKS.get(task, ())
    return list(TASKS).index(task), models.index(model) if model in models else len(models)


# -- claims ------------------------------------------------------------------------------

BEHIND = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""
NEAR_PERFECT = 0.99
MUCH_FASTER = 5.0
ABOUT_EQUAL = 0.2
"""Nats. The published losses of TLTransformer and NanoGPT differ by as much at equal width."""
TAUGHT = "TLTransformer"
NOTHING: Judged = ("nothing to compare", OPEN)
Fits = Sequence[Fitted]


def claims(fits: Fits) -> list[Expectation]:
    """The claims on addition, then those on text, for the tasks that the run has."""
    return [
        Expectation(expected=claim, seen=text, holds=holds)
        for task in TASKS
        if (members := [f for f in fits if f.task == task])
        for name, claim in tables("published")[task]["claims"].items()
        for text, holds in (JUDGES[name](members),)
    ]


def _parted(members: Fits, model: str = TAUGHT) -> tuple[Fits, Fits]:
    """Of the trained models those of this name, and the transformers that have another."""
    trained = [f for f in members if f.status == PASS and f.points]
    return [f for f in trained if f.model == model], [f for f in trained if f.model not in ("MLP", model)]


def _lower(groups: Iterable[Sequence[float | None]], text: str, factor: float = 1.0) -> Judged:
    """Whether each value of the first group is lower than each of the second, by this factor."""
    low, high = ([value for value in values if value is not None] for values in groups)
    if not low or not high:
        return NOTHING
    times = min(high) / max(low)
    holds = times >= factor if factor > 1 else times > 1
    return text.format(span(low, 3), span(high, 3), significant(times, 2)), verdict(holds)


def _times_to(level: float, members: Fits) -> list[float]:
    return [point["seconds"] for f in members if (point := f.reached(level))]


def _mlp_solves(members: Fits) -> Judged:
    mlps = [f for f in members if f.model == "MLP"]
    solved = [f"{f.learning_rate:g} after {s:.1f} s" for f in mlps for s in _times_to(SOLVED, [f])]
    text = f"at {len(solved)} of {len(mlps)}{': ' if solved else ''}{', '.join(solved)}"
    return text, verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN


def _mlp_infers(members: Fits) -> Judged:
    groups = ([f.inference_micros for f in group] for group in _parted(members, "MLP"))
    return _lower(groups, "µs per example: MLP {}, transformers {}: {} times or more", MUCH_FASTER)


def _transformers_behind(members: Fits) -> Judged:
    mlps, others = _parted(members, "MLP")
    times = _times_to(SOLVED, mlps)
    if not times or not others:
        return NOTHING
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=Fitted.accuracy_at)
    text = (
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.accuracy_at():.1%} ({best.name})"
    )
    return text, verdict(then < BEHIND and best.accuracy_at() < SOLVED)


def _taught_is_best(members: Fits) -> Judged:
    """A run that has seen fewer examples than the source and is not near perfect shows nothing."""
    ours, others = _parted(members)
    if not ours or not others:
        return NOTHING
    best, other = (max(group, key=lambda f: f.points[-1]["test_accuracy"]) for group in (ours, others))
    accuracies = [f.points[-1]["test_accuracy"] for f in (best, other)]
    text = ", ".join(f"{f.name} ends at {end:.1%}" for f, end in zip((best, other), accuracies, strict=True))
    if accuracies[0] >= NEAR_PERFECT:
        return text, verdict(accuracies[0] >= accuracies[1])
    theirs, seen = published_examples(), min(f.batch * f.points[-1]["step"] for f in ours)
    if seen >= theirs:
        return text, verdict(False)
    takes = significant(theirs * max(f.micros or 0.0 for f in ours) / 1e6, 2)
    text += f", after {seen / 1e6:.1f} million examples or more; the published budget held "
    return f"{text}{theirs / 1e6:.1f} million, which take {takes} s here", NOT_SHOWN


def published_examples() -> float:
    """How many examples TLTransformer's published training saw."""
    (row,) = (row for row in published("addition") if row["model, learning rate"].startswith(TAUGHT))
    return 1e6 * float(row["seconds"]) / float(row["µs per example"])


def _taught_is_cheap(members: Fits) -> Judged:
    groups = ([f.micros for f in group] for group in _parted(members))
    return _lower(groups, "µs per example: {}, the others {}")


def _taught_is_sooner(members: Fits) -> Judged:
    groups = _parted(members)
    if not all(groups):
        return NOTHING
    for level in reversed(LEVELS):
        first, second = (min(_times_to(level, group), default=math.inf) for group in groups)
        if min(first, second) < math.inf:
            ours, others = ("never" if t == math.inf else f"after {t:.1f} s" for t in (first, second))
            return f"{level:.1%} {ours}, the others {others}", verdict(first < second)
    return f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN


def _mlp_fails(members: Fits) -> Judged:
    groups = ([f.points[-1]["test_loss"] for f in group] for group in _parted(members, "MLP")[::-1])
    return _lower(groups, "MLPs {1}, transformers {0}")


def _taught_and_nano_equal(members: Fits) -> Judged:
    """By the size in the name of the case."""
    ours, others = (
        {
            f.case.rpartition("_")[2]: f.points[-1]["test_loss"]
            for f in group
            if f.model in (TAUGHT, "NanoGPT")
        }
        for group in _parted(members)
    )
    both = {size: (loss, others[size]) for size, loss in ours.items() if size in others}
    if not both:
        return NOTHING
    text = "; ".join(f"{size} wide: {a:.2f} and {b:.2f}" for size, (a, b) in both.items())
    return text, verdict(all(abs(a - b) <= ABOUT_EQUAL for a, b in both.values()))


JUDGES: Mapping[str, Callable[[Fits], Judged]] = {
    judge.__name__.lstrip("_"): judge
    for judge in (
        *(_mlp_solves, _mlp_infers, _transformers_behind, _taught_is_best, _taught_is_cheap),
        *(_taught_is_sooner, _mlp_fails, _taught_and_nano_equal),
    )
}


# -- the report ----------------------------------------------------------------------------------


def render(lines: Sequence[Line]) -> Report:
    """An unmet expectation is in the report, but is not a failure."""
    fits = fitted(lines)
    files = {
        "results.csv": pd.DataFrame([f.numbers() for f in fits], dtype=object).to_csv(index=False).encode()
    }
    for task in dict.fromkeys(f.task for f in fits):
        files |= _curves(task, [f for f in fits if f.task == task and f.points])
    ended = {f.variant for f in fits}
    failures = [f"{f.variant}: {f.message}" for f in fits if f.status != PASS]
    failures += [f"{name}: {CUT_SHORT}" for name in lines[0].get("variants", ()) if name not in ended]
    return Report(blocks=[*_blocks(lines[0], fits)], files=files, failures=failures)


def _blocks(study: Line, fits: Sequence[Fitted]) -> Iterator[str]:
    options = study["options"]
    # older records have additions of three digits only
    signs, digits = options.get("operations", ["+"]), options.get("digits", LEFT_DIGITS)
    published_task = (signs, digits) == (["+"], LEFT_DIGITS)
    budgets = {
        "addition": f"{options['budget_s']:g} s on addition",
        "shakespeare": f"{options['text_budget_s']:g} s on text (the third MLP twice that)",
    }
    tasks = [task for task in options.get("tasks", budgets) if task == "addition" or not study["refused"]]
    yield "# Study B: four implementations of a small language model, two tasks"
    yield (
        f"Each model trained for at most {' and '.join(budgets[task] for task in tasks)}, "
        f"without the time of evaluations. {environment_line(study['environment'])}."
    )
    if options["quick"]:
        yield "A trial run (--quick): fewer additions, short budgets. The figures mean nothing."
    if on_addition := [f for f in fits if f.task == "addition"]:
        asked = f"Questions with {' and '.join(signs)}, numbers of {digits} digits, written backwards."
        other = "" if published_task else ANOTHER_TASK
        yield from part("addition", asked, _beside("addition", on_addition), other, _when(on_addition))
    if on_text := [f for f in fits if f.task == "shakespeare"]:
        text = "NOT Shakespeare but a synthetic text."
        if study["text"] == "shakespeare":  # it has a checksum, so older records had the same sizes
            text = SPLIT.format(**study.get("text_sizes", SIZES))
        yield from part("shakespeare", text, _beside("shakespeare", on_text))
    if study["refused"]:
        yield f"Task 2 was left out: {study['refused']}"
    yield "## Do the source's claims hold here?"
    yield expectation_table(claims(fits), judged=not options["quick"] and published_task)


def _when(fits: Sequence[Fitted]) -> str:
    heads = ["model", "learning_rate", *(f"steps, seconds to {level:.1%}" for level in LEVELS)]
    rows = []
    for f in fits:
        texts = (
            f"{p['step']:,}, {p['seconds']:.1f} s" if p else "not reached" for p in map(f.reached, LEVELS)
        )
        rows.append([f.model, f"{f.learning_rate:g}", *texts])
    return table(heads, rows)


def _beside(task: str, members: Sequence[Fitted]) -> str:
    """The rows of the published table and ours. Beside each published column is ours, then ``MORE``."""
    first, *columns = tables("published")[task]["columns"]
    digits = {**tables("published")[task]["ours"], **MORE}
    theirs = {row.pop(first): [*row.values()] for row in published(task)}
    ours = {
        f.name if task == "addition" else f.case.replace("_shakespeare_", " "): f.numbers() for f in members
    }
    lines = []
    for label in {**theirs, **ours}:
        values = ours.get(label, {"status": PASS})
        missing = MISSING if values["status"] == PASS else values["status"]
        texts = [
            missing if value is None else format(value, how) if how else significant(value, 3)
            for value, how in ((values.get(name), how) for name, how in digits.items())
        ]
        pairs = zip(theirs.get(label, [MISSING] * len(columns)), texts, strict=False)
        lines.append([label, *(cell for pair in pairs for cell in pair), *texts[len(columns) :]])
    heads = [head for column in columns for head in (f"{column}, published", "ours")]
    return table([first, *heads, *MORE_HEADS], lines)


def _curves(task: str, fits: Sequence[Fitted]) -> Mapping[str, bytes]:
    """Losses and accuracies over the seconds of training; thin lines are those of training."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    models = sorted({f.model for f in fits})
    measured = any("train_accuracy" in point for f in fits for point in f.points)
    with plain_style():
        figure = new_figure(11.0, 4.2)
        panels = figure.subplots(1, 2)
        for panel, what, unit in zip(panels, ("loss", "accuracy"), ("nats", ""), strict=True):
            for f in fits:
                # a line style for each learning rate or size of a model
                place = [other.variant for other in fits if other.model == f.model].index(f.variant)
                style = {
                    "color": COLORS[models.index(f.model) % len(COLORS)],
                    "ls": LINES[place % len(LINES)],
                }
                seconds = [point["seconds"] for point in f.points]
                test, train = ([p.get(f"{data}_{what}") for p in f.points] for data in ("test", "train"))
                label = f"{f.case.replace(f'_{task}', '')} lr {f.learning_rate:g}"
                panel.plot(seconds, test, label=label, linewidth=1.3, marker=".", ms=3, **style)
                panel.plot(seconds, train, linewidth=0.6, alpha=0.5, **style)
            thin = " (thin: training)" if measured or unit else ""
            name = f"{what}, {unit}" if unit else f"{what} by symbol"
            panel.set(xscale="log", xlabel="seconds of training", ylabel=f"{name}{thin}")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=9))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # plain numbers
            panel.xaxis.set_minor_formatter(NullFormatter())
        if fits:
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return pictures({f"curves_{task}.png": figure})
