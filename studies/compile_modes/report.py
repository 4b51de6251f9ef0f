"""Report of study C: tables, the published expectations, and what the modes do on this device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.timing.first_calls import FIRST_CALLS
from runner.analysis.comparison import Part
from runner.analysis.digits import MISSING, ms_text, seconds_text, significant, speedup_text, steps_text
from runner.labels import ran_batch
from studies.compile_modes.plots import compile_against_run, first_calls
from studies.compile_modes.results import Outcome, by_title, expectations, missing, outcomes, pays_after
from studies.expectations import expectation_table
from studies.journal import Line
from studies.markdown import environment_text, table

ON_CPU = (
    "On a CPU there are no CUDA graphs: reduce-overhead does the same as default. With max-autotune, "
    "inductor times the library's kernel and its own C++ kernel for each matrix product. Convolutions "
    "always use the library. Kernels are timed only if weights are constants (freezing)."
)
ON_CUDA = (
    "reduce-overhead replays CUDA graphs. max-autotune does this too, and times its own kernels "
    "against the libraries' kernels."
)


def render(lines: Sequence[Line]) -> Mapping[str, bytes]:
    measured = outcomes(lines)
    return {
        "report.md": "\n".join(_report(lines[0], measured)).encode(),
        **compile_against_run(measured),
        **first_calls(measured),
    }


def failures(lines: Sequence[Line]) -> list[str]:
    """A sentence for each mode without a valid number. An unmet expectation is not a failure."""
    measured = outcomes(lines)
    return [*_broken(measured), *(f"{what}: there is no outcome" for what in missing(lines[0], measured))]


def _broken(measured: Sequence[Outcome]) -> list[str]:
    return [f"{o.title}, {o.mode}: {o.why}" for o in measured if not o.record.status.passed]


def _report(study: Line, measured: Sequence[Outcome]) -> list[str]:
    options = study["options"]
    total = len(measured) + len(missing(study, measured))
    passed = sum(outcome.record.status.passed for outcome in measured)
    lines = [
        "# Study C: torch.compile modes",
        "",
        (
            f"{passed} of {total} (model, mode) passed parity and were timed. Each mode has a process of its "
            "own with empty compile caches. Rounds time the mode and eager in random order. "
            f"{environment_text(study['environment'])}"
        ),
        "",
        _freezing(study),
    ]
    if options["quick"]:
        lines += ["", "A trial run (--quick): tiny models, few rounds. The figures mean nothing."]
    lines += ["", "## Models", "", *_models(measured), "", *_steady(measured)]
    if any(outcome.comparison.generation for outcome in measured):
        lines += ["", *_generation(measured)]
    lines += ["", *_calls(measured), "", *_expected(measured, quick=options["quick"])]
    if said := failures_of(study, measured):
        lines += ["", "## What has no number", "", *said]
    return lines


def _freezing(study: Line) -> str:
    options = study["options"]
    modes = ON_CPU if options["device"] == "cpu" else ON_CUDA
    weights = "constants" if options["freezing"] else "not constants"
    return f"{modes} In this run, weights are {weights} for the compiler, in every mode."


def failures_of(study: Line, measured: Sequence[Outcome]) -> list[str]:
    ended = [f"{what}: the run ended before" for what in missing(study, measured)]
    return [f"- {sentence}" for sentence in (*_broken(measured), *ended)]


def _models(measured: Sequence[Outcome]) -> list[str]:
    heads = ["model", "case", "scale", "parameters", "batch", "batch of the suite", "tokens read, generated"]
    lines = []
    for title, group in by_title(measured).items():
        record = next((o.record for o in group if o.record.model is not None), group[0].record)
        case = record.job.case
        tokens = (case.prompt_tokens, case.new_tokens)
        lines.append(
            [
                title,
                case.name,
                case.scale,
                MISSING if record.model is None else f"{record.model.parameters:,}",
                str(ran_batch(record) or MISSING),
                str(case.published_batch_size or MISSING),
                MISSING if tokens == (None, None) else f"{tokens[0]}, {tokens[1]}",
            ]
        )
    return table(heads, lines)


def _steady(measured: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", "compile s", "eager ms", "compiled ms", "speedup [95 %]", "verdict"]
    heads += ["pays after", "kernels measured", "n"]
    return [
        "## Compile time and steady state",
        "",
        *table(heads, [_steady_cells(outcome) for outcome in measured]),
        "",
        (
            "ms: time of one step, which is a batch of images or a whole generation. compile s: time of the "
            f"first {FIRST_CALLS} calls, less the time of as many eager steps. pays after: the number of "
            "calls after which compilation has saved time; never: slower than eager, or the interval "
            "contains 1. kernels measured: operations for which inductor timed several kernels and chose "
            "the fastest."
        ),
    ]


def _steady_cells(outcome: Outcome) -> list[str]:
    comparison = outcome.comparison
    measured = outcome.record.metrics.get("kernels_autotuned")
    calls = pays_after(comparison)
    latency = comparison.compilation_latency_s
    verdict = comparison.verdict.value if comparison.verdict is not None else MISSING
    return [
        outcome.title,
        outcome.mode,
        MISSING if latency is None else seconds_text(latency),
        MISSING if comparison.baseline_ms is None else ms_text(comparison.baseline_ms),
        MISSING if comparison.candidate_ms is None else ms_text(comparison.candidate_ms),
        speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high),
        verdict if outcome.record.status.passed else outcome.record.status.value,
        MISSING if calls is None else steps_text(calls),
        MISSING if measured is None else str(measured),
        str(comparison.n),
    ]


def _generation(measured: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", "prefill ms, eager", "compiled", "speedup [95 %]"]
    heads += ["decode ms a token, eager", "compiled", "speedup [95 %]", "tokens/s, eager", "compiled"]
    lines = []
    for outcome in measured:
        parts = outcome.comparison.generation
        if parts is None:
            continue
        tokens = (outcome.record.job.case.new_tokens or 1) - 1
        rates = (parts.baseline_tokens_per_s, parts.candidate_tokens_per_s)
        lines.append(
            [
                outcome.title,
                outcome.mode,
                *_part_cells(parts.prefill, 1),
                *(_part_cells(parts.decode, tokens) if parts.decode else [MISSING] * 3),
                *(MISSING if rate is None else significant(rate, 3) for rate in rates),
            ]
        )
    return [
        "## Generation: prefill and decode apart",
        "",
        *table(heads, lines),
        "",
        (
            "Prefill ends with the first new token. Decode makes the other tokens, with one call of the "
            "model for each. Tokens per second are those of decode."
        ),
    ]


def _part_cells(part: Part, tokens: int) -> list[str]:
    return [
        ms_text(part.baseline_ms / tokens),
        ms_text(part.candidate_ms / tokens),
        speedup_text(part.speedup, part.ci_low, part.ci_high),
    ]


def _calls(measured: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", *(f"call {n + 1}, s" for n in range(FIRST_CALLS))]
    heads += ["later, s", "of so many", "eager, s"]
    lines = []
    for outcome in measured:
        calls = outcome.record.first_calls_s
        shown = [seconds_text(seconds) for seconds in calls[:FIRST_CALLS]]
        eager, later = outcome.comparison.baseline_ms, outcome.later_calls_s
        lines.append(
            [
                outcome.title,
                outcome.mode,
                *(shown + [MISSING] * (FIRST_CALLS - len(shown))),
                MISSING if later is None else seconds_text(later),
                str(max(0, len(calls) - FIRST_CALLS)),
                MISSING if eager is None else seconds_text(eager / 1e3),
            ]
        )
    return [
        "## The first calls, one by one",
        "",
        *table(heads, lines),
        "",
        "later: the median of the other calls before the timed rounds. eager: the median of its steps.",
    ]


def _expected(measured: Sequence[Outcome], *, quick: bool) -> list[str]:
    return [
        "## Is the expected story seen here?",
        "",
        *expectation_table(expectations(measured), first="model", judged=not quick),
        "",
        (
            "Each mode was compiled once. Compile times that differ by less than 20 % count as equal. On a "
            "CPU, so do compile times that differ by less than those of default and reduce-overhead, which "
            "compile the same code there. Modes are compared by their speedups over eager in their own "
            "processes; the interval includes an assumed difference between processes (2 % each)."
        ),
    ]
