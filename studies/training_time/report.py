"""Report of study A: tables beside the published tables, checks and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from runner.analysis.digits import MISSING, speedup_text
from studies.expectations import Expectation, expectation_table
from studies.journal import Line
from studies.markdown import environment_text, table
from studies.training_time.conclusions import STEP_NOISE, WALL_NOISE, conclusions
from studies.training_time.published import (
    HEADS,
    LABELS,
    PRECISIONS,
    REFERENCE,
    TRAINING_TIME,
    minutes_text,
    noise_text,
    seconds_of,
)
from studies.training_time.results import ASTRAY, Following, Row, following, grouped, rows, trainings
from studies.training_time.results import REFERENCE as FP32_EAGER

PUBLISHED_MODES = {
    "eager": "",
    "script": " + TorchScript script",
    "compile": " + compile",
    "submodules": " + compile, each submodule",
}


def render(lines: Sequence[Line]) -> Mapping[str, bytes]:
    from studies.training_time.plots import loss_curves, time_bars

    found = trainings(lines)
    groups = grouped(found)
    made, checks = rows(groups), following(groups)
    return {
        "report.md": "\n".join(_report(lines[0], made, checks, conclusions(groups))).encode(),
        **loss_curves(found),
        **time_bars(made),
    }


def failures(lines: Sequence[Line]) -> list[str]:
    """A sentence for each failed variant, and for each variant that does not follow eager."""
    groups = grouped(trainings(lines))
    broken = [f"{r.precision} {r.mode}: {r.status}" for r in rows(groups) if r.status != "PASS"]
    astray = [f"{c.precision} {c.mode}: {c.verdict}" for c in following(groups) if c.verdict == ASTRAY]
    return [*broken, *astray]


def _report(
    study: Line, made: Sequence[Row], checks: Sequence[Following], claims: Sequence[Expectation]
) -> list[str]:
    sizes, text = study["sizes"], study["text"]
    marked = "" if text["name"] == "shakespeare" else " - NOT Shakespeare: figures of a trial run"
    return [
        "# Study A: training time of a small GPT",
        "",
        (
            f"{study['parameters']:,} parameters; {sizes['steps']} steps of "
            f"{sizes['batch']} x {sizes['block']} characters, {sizes['seeds']} seeds; "
            f"text: {text['name']}, {text['characters']:,} characters{marked}. "
            f"{environment_text(study['environment'])}{_attention(study)}"
        ),
        "",
        "## Wall time, minutes:seconds",
        "",
        *_by_precision(made, _time_cell),
        "",
        (
            "Time of one training run: compilation with empty caches (first seed) plus the median run time "
            "of all seeds. Variants alternate in chunks of steps."
        ),
        "",
        "## Compile + run, minutes:seconds",
        "",
        *_by_precision(made, _split_cell),
        "",
        "## Steps alone: how many times as fast as fp32 eager",
        "",
        *_by_precision(made, _step_cell),
        "",
        "Measured in paired chunks after the first steps, with 95 % intervals.",
        "",
        *_side_by_side(made),
        "",
        *_conclusions(claims, judged=text["name"] == "shakespeare"),
        "",
        *_published(),
        "",
        *_checks(checks),
        "",
        *_failed(made),
    ]


def _by_precision(made: Sequence[Row], cell: Callable[[Row], str]) -> list[str]:
    precisions = [name for name in PRECISIONS if any(row.precision == name for row in made)]
    cells = {(row.mode, row.precision): cell(row) for row in made}
    modes = list(dict.fromkeys(row.mode for row in made))
    return table(
        ["", *(HEADS[name] for name in precisions)],
        [[LABELS.get(m, m), *(cells.get((m, name), MISSING) for name in precisions)] for m in modes],
    )


def _eager(made: Sequence[Row]) -> Row | None:
    return next((row for row in made if (row.precision, row.mode) == FP32_EAGER), None)


def _time_cell(row: Row) -> str:
    return row.status if row.wall_s is None else minutes_text(row.wall_s)


def _split_cell(row: Row) -> str:
    if row.compile_s is None or row.run_s is None:
        return row.status
    return f"{minutes_text(row.compile_s)} + {minutes_text(row.run_s)}"


def _step_cell(row: Row) -> str:
    if (row.precision, row.mode) == FP32_EAGER:
        return "1"
    if row.step_ratio is None:
        return MISSING
    low, high = row.ci or (None, None)
    return speedup_text(row.step_ratio, low, high)


def _side_by_side(made: Sequence[Row]) -> list[str]:
    """Ratios of wall times, and the published ratios of two versions of PyTorch."""
    eager = _eager(made)
    lines = []
    for row in made:
        ours = _ratio(eager.wall_s if eager else None, row.wall_s)
        alone = _ratio(eager.run_s if eager else None, row.run_s)
        published = [_published_ratio(group, row.mode, row.precision) for group in TRAINING_TIME]
        lines.append([HEADS[row.precision], LABELS.get(row.mode, row.mode), ours, alone, *published])
    heads = ["precision", "variant", "ours", "ours, without compiling"]
    heads += [f"{REFERENCE[group]}, {group} (published)" for group in TRAINING_TIME]
    return [
        "## Ratios to fp32 eager, ours beside the published ones (above 1: faster)",
        "",
        *table(heads, lines),
        "",
        (
            'Ratios of wall times; "without compiling": ratios of run times. Compilation is a larger part of '
            "a short run: the published runs took minutes."
        ),
    ]


def _attention(study: Line) -> str:
    """Which fused kernels torch may choose for attention. Older records do not have it."""
    allowed = study.get("attention_kernels")
    if allowed is None:
        return ""
    return f" Fused attention kernels that torch may choose: {', '.join(allowed) or 'none'}."


def _conclusions(claims: Sequence[Expectation], *, judged: bool) -> list[str]:
    return [
        "## Do the author's two conclusions hold here?",
        "",
        *expectation_table(claims, first="of", judged=judged),
        "",
        (
            "steps: paired chunks, without compiling, with 95 % intervals, which must lie beyond "
            f"{STEP_NOISE:.0%}. whole run: wall times, with compiling. They have no interval: a difference "
            f"below {WALL_NOISE - 1:.0%} cannot be told."
        ),
    ]


def _ratio(eager_s: float | None, seconds: float | None) -> str:
    return f"{eager_s / seconds:.2f}" if eager_s and seconds else MISSING


def _published_ratio(group: str, mode: str, precision: str) -> str:
    times, base = TRAINING_TIME[group], REFERENCE[group]
    if mode not in PUBLISHED_MODES:
        return MISSING
    time = times.get((base + PUBLISHED_MODES[mode], precision))
    if time is None:
        return MISSING
    return f"{seconds_of(times[base, 'float32']) / seconds_of(time):.2f}"


def _published() -> list[str]:
    lines = []
    for group, times in TRAINING_TIME.items():
        for label in dict.fromkeys(label for label, _ in times):
            mark = " (published, not measured here)" if label.startswith("TorchSharp") else ""
            cells = [times.get((label, name), MISSING) for name in PRECISIONS]
            lines.append([f"{group}: {label}{mark}", *cells])
    return [
        "## The published tables: one RTX 3070, minutes:seconds",
        "",
        *table(["", *(HEADS[name] for name in PRECISIONS)], lines),
        "",
        noise_text(),
    ]


def _checks(checks: Sequence[Following]) -> list[str]:
    lines = [
        [HEADS[c.precision], LABELS.get(c.mode, c.mode), _nats(c.distance), _nats(c.spread), c.verdict]
        for c in checks
    ]
    return [
        "## Do compiled trainings follow eager?",
        "",
        *table(["precision", "variant", "distance", "spread", "verdict"], lines),
        "",
        (
            "Differences of losses on held-out text, in nats, as root mean square over all evaluations. "
            "distance: between the variant and eager with the same seed. spread: between eager with two "
            "seeds. A variant follows eager if its distance is at most the spread."
        ),
    ]


def _nats(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"


def _failed(made: Sequence[Row]) -> list[str]:
    return [f"- {r.precision} {r.mode}: {r.status}. {r.message or ''}" for r in made if r.status != "PASS"]
