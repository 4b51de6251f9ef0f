"""Report of study A: tables beside the published tables, the author's conclusions, checks and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.protocol import Protocol
from runner.analysis.digits import MISSING, estimate_text
from runner.reports.parts.sections import environment_line
from studies.journal import PASS, Line
from studies.options import PRECISIONS
from studies.report import FAILS, HOLDS, OPEN, Expectation, Report, expectation_table, table
from studies.training_time.results import EAGER, REFERENCE, Variant, following, paired, variants_of
from studies.words import published, tables

Variants = Mapping[str, Variant]
HEADS, LABELS = tables("words")["precisions"], tables("words")["modes"]
WALL_NOISE = 1.05
"""Wall times of whole runs have no interval: those that differ by a smaller factor are not told apart."""
STEP_NOISE = Protocol().noise_threshold
"""As in the runner's verdicts, an interval must lie beyond 2 %: processes differ by about as much."""
ASTRAY = "DOES NOT FOLLOW"
UNTIMED = "not both were timed"


def render(lines: Sequence[Line]) -> Report:
    from studies.plots import loss_curves

    study, variants = lines[0], variants_of(lines)
    sizes, text = study["sizes"], study["text"]
    real = text["name"] == "shakespeare"
    judged = real and not study.get("options", {}).get("quick")
    about = (
        f"{study['parameters']:,} parameters; {sizes['steps']} steps of "
        f"{sizes['batch']} x {sizes['block']} characters, {sizes['seeds']} seeds; "
        f"text: {text['name']}, {text['characters']:,} characters"
        f"{'' if real else ' - NOT Shakespeare: figures of a trial run'}. "
        f"{environment_line(study['environment'])}.{_attention(study)}"
    )
    parts = {
        "wall": ("Wall time = compile + run, minutes:seconds", _by_precision(variants, _time_cell)),
        "steps": (
            "Steps alone: how many times as fast as fp32 eager",
            _by_precision(variants, lambda v: "1" if v.name == REFERENCE else _steps(variants, REFERENCE, v)),
        ),
        "ratios": (
            "Ratios to fp32 eager, ours beside the published ones (above 1: faster)",
            _side_by_side(variants),
        ),
        "conclusions": (
            "Do the author's two conclusions hold here?",
            expectation_table(conclusions(variants), first="of", judged=judged),
        ),
        "published": ("The published tables: one RTX 3070, minutes:seconds", _published()),
        "following": ("Do compiled trainings follow eager?", _following(variants)),
    }
    notes = tables("words")["notes"]
    blocks = [
        block for name, (title, cells) in parts.items() for block in (f"## {title}", cells, notes[name])
    ]
    broken = [(v.name, v.failed) for v in variants.values() if v.failed]
    failed = "\n".join(f"- {name}: {training.status}. {training.message}" for name, training in broken)
    astray = [name for name, *_, verdict in _followed(variants) if verdict == ASTRAY]
    return Report(
        blocks=["# Study A: training time of a small GPT", about, *blocks, failed],
        files=loss_curves([*variants.values()]),
        failures=[
            *(f"{name}: {training.status}" for name, training in broken),
            *(f"{name}: {ASTRAY}" for name in astray),
        ],
    )


def _attention(study: Line) -> str:
    """Which fused kernels torch may choose for attention. Older records do not have it."""
    allowed = study.get("attention_kernels")
    if allowed is None:
        return ""
    return f" Fused attention kernels that torch may choose: {', '.join(allowed) or 'none'}."


def _named(variant: Variant) -> list[str]:
    return [HEADS[variant.precision], LABELS.get(variant.mode, variant.mode)]


def _by_precision(variants: Variants, cell: Callable[[Variant], str]) -> str:
    rows = variants.values()
    precisions = [name for name in PRECISIONS if any(row.precision == name for row in rows)]
    cells = {(row.mode, row.precision): cell(row) for row in rows}
    modes = dict.fromkeys(row.mode for row in rows)
    return table(
        ["", *(HEADS[name] for name in precisions)],
        [[LABELS.get(m, m), *(cells.get((m, name), MISSING) for name in precisions)] for m in modes],
    )


def _time_cell(row: Variant) -> str:
    if row.wall_s is None or row.compile_s is None or row.run_s is None:
        return row.failed.status if row.failed else PASS
    return f"{minutes_text(row.wall_s)} = {minutes_text(row.compile_s)} + {minutes_text(row.run_s)}"


def minutes_text(seconds: float) -> str:
    """``5:31``. Below a minute with tenths, ``0:07.4``, so that short runs can be distinguished."""
    if seconds < 60:
        tenths = round(seconds * 10)
        return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def _steps(variants: Variants, slow: str, fast: Variant) -> str:
    return estimate_text(paired(variants.get(slow), fast))


def _side_by_side(variants: Variants) -> str:
    """Ratios of wall times, and the published ratios of several lists."""
    eager, rows = variants.get(REFERENCE), published("training_time")
    times = {
        (row["group"], f"{name} {row['mode']}"): 60 * int(row[name].split(":")[0])
        + int(row[name].split(":")[1])
        for row in rows
        for name in PRECISIONS
        if row[name] and row["mode"]
    }
    lists = list(dict.fromkeys(row["group"] for row in rows))
    lines = []
    for row in variants.values():
        ratios = (
            _divided(eager.wall_s if eager else None, row.wall_s),
            _divided(eager.run_s if eager else None, row.run_s),
            *(_divided(times[group, REFERENCE], times.get((group, row.name))) for group in lists),
        )
        lines.append([*_named(row), *(MISSING if value is None else f"{value:.2f}" for value in ratios)])
    eagers = {row["group"]: row["variant"] for row in rows if row["mode"] == EAGER}
    sources = [f"{eagers[group]}, {group} (published)" for group in lists]
    return table(["precision", "variant", "ours", "ours, without compiling", *sources], lines)


def _divided(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow and fast else None


def _published() -> str:
    lines = [
        [
            f"{row['group']}: {row['variant']}{'' if row['mode'] else ' (published, not measured here)'}",
            *(row[name] or MISSING for name in PRECISIONS),
        ]
        for row in published("training_time")
    ]
    return table(["", *HEADS.values()], lines)


def _followed(variants: Variants) -> Iterator[tuple[str, float | None, float | None, str]]:
    """Variant, its distance from eager, the spread of eager, and whether it follows eager."""
    for name, variant in variants.items():
        if variant.mode == EAGER:
            continue
        distance, spread = following(variant, variants.get(f"{variant.precision} {EAGER}"))
        if distance is None:
            verdict = "did not train"
        elif spread is None:
            verdict = "unknown: takes two seeds or more"
        else:
            verdict = "follows" if distance <= spread else ASTRAY
        yield name, distance, spread, verdict


def _following(variants: Variants) -> str:
    lines = [
        [*_named(variants[name]), *(MISSING if nats is None else f"{nats:.2g}" for nats in pair), verdict]
        for name, *pair, verdict in _followed(variants)
    ]
    return table(["precision", "variant", "distance", "spread", "verdict"], lines)


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
        expectation
        for claim, slow, fast in claims
        if slow in variants and fast in variants
        for expectation in _compared(claim, variants[slow], variants[fast])
    ]


def _compared(claim: str, slow: Variant, fast: Variant) -> Iterator[Expectation]:
    steps, factor = paired(slow, fast), _divided(slow.wall_s, fast.wall_s)
    low, high = (steps.low, steps.high) if steps else (None, None)
    text = estimate_text(steps) if steps else UNTIMED
    yield Expectation(title="steps", expected=claim, seen=text, holds=_holds(low, high, 1 + STEP_NOISE))
    text = UNTIMED if factor is None else f"{factor:.2f}x"
    yield Expectation(title="whole run", expected=claim, seen=text, holds=_holds(factor, factor, WALL_NOISE))


def _holds(low: float | None, high: float | None, limit: float) -> str:
    if low is None or high is None:
        return OPEN
    return HOLDS if low > limit else FAILS if high < 1 / limit else OPEN
