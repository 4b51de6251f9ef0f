"""Report of study A: tables beside the published tables, the author's conclusions, checks and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.protocol import Protocol
from runner.analysis.digits import MISSING, estimate_text
from runner.reports.parts.sections import environment_line
from studies.expectations import (
    FAILS,
    HOLDS,
    OPEN,
    Expectation,
    expectation_table,
    published,
    table,
)
from studies.journal import PASS, Line
from studies.training_time.published import (
    HEADS,
    LABELS,
    NOISE,
    PRECISIONS,
    lists,
    minutes_text,
    ratio,
    row_of,
)
from studies.training_time.results import EAGER, REFERENCE, Results, VariantTimes, paired, results

Cell = Callable[[VariantTimes], str]
WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
COMPILE = "compile"
UNTIMED = "not both were timed"


def render(lines: Sequence[Line]) -> tuple[Mapping[str, bytes], list[str]]:
    from studies.plots import loss_curves

    summary = results(lines)
    text = "\n".join(_report(lines[0], summary)).encode()
    return {"report.md": text, **loss_curves(summary)}, summary.failures()


def _report(study: Line, summary: Results) -> list[str]:
    sizes, text = study["sizes"], study["text"]
    real = text["name"] == "shakespeare"
    judged = real and not study.get("options", {}).get("quick")
    rows = [*summary.rows.values()]
    return [
        "# Study A: training time of a small GPT",
        "",
        (
            f"{study['parameters']:,} parameters; {sizes['steps']} steps of "
            f"{sizes['batch']} x {sizes['block']} characters, {sizes['seeds']} seeds; "
            f"text: {text['name']}, {text['characters']:,} characters"
            f"{'' if real else ' - NOT Shakespeare: figures of a trial run'}. "
            f"{environment_line(study['environment'])}.{_attention(study)}"
        ),
        *_part("Wall time = compile + run, minutes:seconds", _by_precision(rows, _time_cell), WALL),
        *_part("Steps alone: how many times as fast as fp32 eager", _by_precision(rows, _step_cell), STEPS),
        *_part(
            "Ratios to fp32 eager, ours beside the published ones (above 1: faster)",
            _side_by_side(summary),
            RATIOS,
        ),
        *_part(
            "Do the author's two conclusions hold here?",
            expectation_table(conclusions(summary), first="of", judged=judged),
            CONCLUSIONS,
        ),
        *_part("The published tables: one RTX 3070, minutes:seconds", _published(), NOISE),
        *_part("Do compiled trainings follow eager?", _following(summary), FOLLOWING),
        "",
        *(f"- {r.precision} {r.mode}: {r.status}. {r.message or ''}" for r in rows if r.status != PASS),
    ]


WALL = (
    "Time of one training run: compilation with empty caches (first seed) plus the median run time "
    "of all seeds. Variants alternate in chunks of steps."
)
STEPS = "Measured in paired chunks after the first steps, with 95 % intervals."
RATIOS = (
    'Ratios of wall times; "without compiling": ratios of run times. Compilation is a larger part of '
    "a short run: the published runs took minutes."
)
CONCLUSIONS = (
    "steps: paired chunks, without compiling, with 95 % intervals, which must lie beyond "
    f"{STEP_NOISE:.0%}. whole run: wall times, with compiling. They have no interval: a difference "
    f"below {WALL_NOISE - 1:.0%} cannot be told."
)
FOLLOWING = (
    "Differences of losses on held-out text, in nats, as root mean square over all evaluations. "
    "distance: between the variant and eager with the same seed. spread: between eager with two "
    "seeds. A variant follows eager if its distance is at most the spread."
)


def _part(title: str, lines: Sequence[str], note: str) -> list[str]:
    return ["", f"## {title}", "", *lines, "", note]


def _by_precision(rows: Sequence[VariantTimes], cell: Cell) -> list[str]:
    precisions = [name for name in PRECISIONS if any(row.precision == name for row in rows)]
    cells = {(row.mode, row.precision): cell(row) for row in rows}
    modes = list(dict.fromkeys(row.mode for row in rows))
    return table(
        ["", *(HEADS[name] for name in precisions)],
        [[LABELS.get(m, m), *(cells.get((m, name), MISSING) for name in precisions)] for m in modes],
    )


def _time_cell(row: VariantTimes) -> str:
    if row.wall_s is None or row.compile_s is None or row.run_s is None:
        return row.status
    return f"{minutes_text(row.wall_s)} = {minutes_text(row.compile_s)} + {minutes_text(row.run_s)}"


def _step_cell(row: VariantTimes) -> str:
    if f"{row.precision} {row.mode}" == REFERENCE:
        return "1"
    return estimate_text(row.steps)


def _side_by_side(summary: Results) -> list[str]:
    """Ratios of wall times, and the published ratios of several lists."""
    eager = summary.rows.get(REFERENCE)
    lines = []
    for row in summary.rows.values():
        ratios = (
            _divided(eager.wall_s if eager else None, row.wall_s),
            _divided(eager.run_s if eager else None, row.run_s),
            *(ratio(group, row.mode, row.precision) for group in lists()),
        )
        texts = [MISSING if value is None else f"{value:.2f}" for value in ratios]
        lines.append([HEADS[row.precision], LABELS.get(row.mode, row.mode), *texts])
    sources = [f"{row_of(group, 'eager')['variant']}, {group} (published)" for group in lists()]
    return table(["precision", "variant", "ours", "ours, without compiling", *sources], lines)


def _divided(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow and fast else None


def _attention(study: Line) -> str:
    """Which fused kernels torch may choose for attention. Older records do not have it."""
    allowed = study.get("attention_kernels")
    if allowed is None:
        return ""
    return f" Fused attention kernels that torch may choose: {', '.join(allowed) or 'none'}."


def _published() -> list[str]:
    lines = [
        [
            f"{row['group']}: {row['variant']}{'' if row['mode'] else ' (published, not measured here)'}",
            *(row[name] or MISSING for name in PRECISIONS),
        ]
        for row in published("training_time")
    ]
    return table(["", *(HEADS[name] for name in PRECISIONS)], lines)


def _following(summary: Results) -> list[str]:
    lines = [
        [
            HEADS[summary.rows[name].precision],
            LABELS.get(summary.rows[name].mode, summary.rows[name].mode),
            *(MISSING if nats is None else f"{nats:.2g}" for nats in pair),
            summary.verdict(name),
        ]
        for name, pair in summary.following.items()
    ]
    return table(["precision", "variant", "distance", "spread", "verdict"], lines)


# -- the author's conclusions: smaller types help, and so does compiling ------------------------


def conclusions(results: Results) -> list[Expectation]:
    """Each conclusion for every pair of variants of the run: for the steps alone, and for whole runs."""
    precisions = list(dict.fromkeys(row.precision for row in results.rows.values()))
    claims = [
        (f"smaller types help: {HEADS[name]}, {mode}", f"float32 {mode}", f"{name} {mode}")
        for mode in (EAGER, COMPILE)
        for name in precisions
        if name != "float32"
    ]
    claims += [
        (f"compiling helps: {HEADS[name]}", f"{name} {EAGER}", f"{name} {COMPILE}") for name in precisions
    ]
    return [
        expectation
        for claim, slow, fast in claims
        if slow in results.rows and fast in results.rows
        for expectation in _compared(claim, results, slow, fast)
    ]


def _compared(claim: str, results: Results, slow: str, fast: str) -> Iterator[Expectation]:
    steps = paired(results.chunks, slow, fast)
    low, high = (steps.low, steps.high) if steps else (None, None)
    text = estimate_text(steps) if steps else UNTIMED
    yield Expectation(title="steps", expected=claim, found=text, holds=_holds(low, high, 1 + STEP_NOISE))
    factor = _divided(results.rows[slow].wall_s, results.rows[fast].wall_s)
    text = UNTIMED if factor is None else f"{factor:.2f}x"
    yield Expectation(title="whole run", expected=claim, found=text, holds=_holds(factor, factor, WALL_NOISE))


def _holds(low: float | None, high: float | None, limit: float) -> str:
    if low is None or high is None:
        return OPEN
    return HOLDS if low > limit else FAILS if high < 1 / limit else OPEN
