"""Report of study A: tables beside the published tables, the author's conclusions, checks and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.protocol import Protocol
from runner.analysis.digits import MISSING, estimate_text
from runner.reports.parts.sections import environment_line
from studies.journal import PASS, Line
from studies.options import PRECISIONS
from studies.report import FAILS, HOLDS, OPEN, Expectation, Report, expectation_table, part, table
from studies.training_time.results import EAGER, REFERENCE, Variant, following, paired, variants_of
from studies.words import published, tables

Variants = Mapping[str, Variant]
HEADS, LABELS = tables("words")["precisions"], tables("words")["modes"]
WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = 1 + Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
ASTRAY = "DOES NOT FOLLOW"
UNTIMED = "not both were timed"


def render(lines: Sequence[Line]) -> Report:
    from studies.plots import loss_curves

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
            *part("steps", _by_precision(variants, lambda v: _steps_cell(variants, v))),
            *part("ratios", _side_by_side(variants)),
            *part("conclusions", expectation_table(conclusions(variants), first="of", judged=judged)),
            *part("published", _published()),
            *part(
                "following",
                table(["precision", "variant", "distance", "spread", "verdict"], followed.values()),
            ),
            "\n".join(
                f"- {name}: {training.status}. {training.message}" for name, training in broken.items()
            ),
        ],
        files=loss_curves([*variants.values()]),
        failures=[
            *(f"{name}: {training.status}" for name, training in broken.items()),
            *(f"{name}: {ASTRAY}" for name, cells in followed.items() if cells[-1] == ASTRAY),
        ],
    )


def _named(variant: Variant) -> list[str]:
    return [HEADS[variant.precision], LABELS.get(variant.mode, variant.mode)]


def _by_precision(variants: Variants, cell: Callable[[Variant], str]) -> str:
    rows = variants.values()
    precisions = [name for name in PRECISIONS if any(row.precision == name for row in rows)]
    modes = dict.fromkeys(row.mode for row in rows)
    cells = {name: cell(row) for name, row in variants.items()}
    return table(
        ["", *(HEADS[name] for name in precisions)],
        [[LABELS.get(m, m), *(cells.get(f"{name} {m}", MISSING) for name in precisions)] for m in modes],
    )


def _time_cell(row: Variant) -> str:
    if row.wall_s is None or row.compile_s is None or row.run_s is None:
        return row.failed.status if row.failed else PASS
    return f"{minutes_text(row.wall_s)} = {minutes_text(row.compile_s)} + {minutes_text(row.run_s)}"


def _steps_cell(variants: Variants, row: Variant) -> str:
    return "1" if row.name == REFERENCE else estimate_text(paired(variants.get(REFERENCE), row))


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
        lines.append(
            [f"{row['group']}: {row['variant']}{note}", *(row[name] or MISSING for name in PRECISIONS)]
        )
    return table(["", *HEADS.values()], lines)


def _followed(variants: Variants, variant: Variant) -> list[str]:
    """Distance from eager, the spread of eager, and whether the variant follows eager."""
    distance, spread = following(variant, variants.get(f"{variant.precision} {EAGER}"))
    if distance is None or spread is None:
        verdict = "did not train" if distance is None else "unknown: takes two seeds or more"
    else:
        verdict = "follows" if distance <= spread else ASTRAY
    texts = (MISSING if nats is None else f"{nats:.2g}" for nats in (distance, spread))
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
        Expectation(title=title, expected=claim, seen=text, holds=holds)
        for claim, slow, fast in claims
        if slow in variants and fast in variants
        for title, text, holds in _compared(variants[slow], variants[fast])
    ]


def _compared(slow: Variant, fast: Variant) -> Iterator[tuple[str, str, str]]:
    steps, factor = paired(slow, fast), _divided(slow.wall_s, fast.wall_s)
    low, high = (steps.low, steps.high) if steps else (None, None)
    yield "steps", estimate_text(steps) if steps else UNTIMED, _holds(low, high, STEP_NOISE)
    text = UNTIMED if factor is None else f"{factor:.2f}x"
    yield "whole run", text, _holds(factor, factor, WALL_NOISE)


def _holds(low: float | None, high: float | None, limit: float) -> str:
    if low is None or high is None:
        return OPEN
    return HOLDS if low > limit else FAILS if high < 1 / limit else OPEN
