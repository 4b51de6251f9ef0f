"""Study C: its tables, what was expected and whether it was seen, and what the modes are on this device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.first_calls import FIRST_CALLS
from runner.comparison import Part
from runner.digits import MISSING, ms_text, seconds_text, significant, speedup_text, steps_text
from runner.labels import ran_batch
from studies.compile_modes_plots import compile_against_run, first_calls
from studies.compile_modes_results import (
    Outcome,
    by_title,
    expectations,
    missing,
    outcomes,
    pays_after,
)
from studies.journal import Line
from studies.markdown import environment_text, table

ON_CPU = (
    "On a CPU there are no CUDA graphs: reduce-overhead is default under another name. max-autotune "
    "lets inductor measure, for each matrix product, the library's kernel against one of its own in C++; "
    "convolutions stay with the library. It does so only where weights are constants (freezing)."
)
ON_CUDA = (
    "reduce-overhead replays CUDA graphs. max-autotune does so too, and measures kernels of its own "
    "against the libraries'."
)


def render(lines: Sequence[Line]) -> Mapping[str, bytes]:
    found = outcomes(lines)
    return {
        "report.md": "\n".join(_report(lines[0], found)).encode(),
        **compile_against_run(found),
        **first_calls(found),
    }


def failures(lines: Sequence[Line]) -> list[str]:
    """A sentence for each mode without a valid number. A story that does not come true is no failure."""
    found = outcomes(lines)
    return [*_broken(found), *(f"{what}: there is no outcome" for what in missing(lines[0], found))]


def _broken(found: Sequence[Outcome]) -> list[str]:
    return [f"{o.title}, {o.mode}: {o.why}" for o in found if not o.record.status.passed]


def _report(study: Line, found: Sequence[Outcome]) -> list[str]:
    options = study["options"]
    total = len(found) + len(missing(study, found))
    passed = sum(outcome.record.status.passed for outcome in found)
    lines = [
        "# Study C: torch.compile modes",
        "",
        (
            f"{passed} of {total} (model, mode) passed parity and were timed. Each mode in a process of its "
            "own, with empty compile caches, in turns with eager in random order. "
            f"{environment_text(study['environment'])}"
        ),
        "",
        _freezing(study),
    ]
    if options["quick"]:
        lines += ["", "A trial run (--quick): tiny models, few rounds. Its figures mean nothing."]
    lines += ["", "## Models", "", *_models(found), "", *_steady(found)]
    if any(outcome.comparison.generation for outcome in found):
        lines += ["", *_generation(found)]
    lines += ["", *_calls(found), "", *_expected(found, quick=options["quick"])]
    if said := failures_of(study, found):
        lines += ["", "## What has no number", "", *said]
    return lines


def _freezing(study: Line) -> str:
    options = study["options"]
    modes = ON_CPU if options["device"] == "cpu" else ON_CUDA
    weights = "constants" if options["freezing"] else "no constants"
    return f"{modes} Here weights are {weights} for the compiler, in every mode alike."


def failures_of(study: Line, found: Sequence[Outcome]) -> list[str]:
    ended = [f"{what}: the run ended before" for what in missing(study, found)]
    return [f"- {sentence}" for sentence in (*_broken(found), *ended)]


def _models(found: Sequence[Outcome]) -> list[str]:
    heads = ["model", "case", "scale", "parameters", "batch", "published batch", "tokens read, generated"]
    lines = []
    for title, group in by_title(found).items():
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


def _steady(found: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", "compile s", "eager ms", "compiled ms", "speedup [95 %]", "verdict"]
    heads += ["pays after", "kernels measured", "n"]
    return [
        "## Compile time and steady state",
        "",
        *table(heads, [_steady_cells(outcome) for outcome in found]),
        "",
        (
            "Milliseconds of one step: a batch of images, or a whole generation. Compile: what the first "
            f"{FIRST_CALLS} calls took beyond settled eager ones. It pays after so many calls; never: "
            "slower than eager, or not shown to be faster (its interval has 1 in it). Kernels measured: "
            "operations for which inductor timed several and took the fastest."
        ),
    ]


def _steady_cells(outcome: Outcome) -> list[str]:
    found = outcome.comparison
    measured = outcome.record.metrics.get("kernels_autotuned")
    calls = pays_after(found)
    latency = found.compilation_latency_s
    verdict = found.verdict.value if found.verdict is not None else MISSING
    return [
        outcome.title,
        outcome.mode,
        MISSING if latency is None else seconds_text(latency),
        MISSING if found.baseline_ms is None else ms_text(found.baseline_ms),
        MISSING if found.candidate_ms is None else ms_text(found.candidate_ms),
        speedup_text(found.speedup, found.ci_low, found.ci_high),
        verdict if outcome.record.status.passed else outcome.record.status.value,
        MISSING if calls is None else steps_text(calls),
        MISSING if measured is None else str(measured),
        str(found.n),
    ]


def _generation(found: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", "prefill ms, eager", "compiled", "speedup [95 %]"]
    heads += ["decode ms a token, eager", "compiled", "speedup [95 %]", "tokens/s, eager", "compiled"]
    lines = []
    for outcome in found:
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
            "Prefill: until the first new token. Decode: the others, for each of which the model is called "
            "once. Tokens per second are of decode."
        ),
    ]


def _part_cells(part: Part, tokens: int) -> list[str]:
    return [
        ms_text(part.baseline_ms / tokens),
        ms_text(part.candidate_ms / tokens),
        speedup_text(part.speedup, part.ci_low, part.ci_high),
    ]


def _calls(found: Sequence[Outcome]) -> list[str]:
    heads = ["model", "mode", *(f"call {n + 1}, s" for n in range(FIRST_CALLS))]
    heads += ["later, s", "of so many", "eager, s"]
    lines = []
    for outcome in found:
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
        "Later: the median of the calls before timing that came next. Eager: the median of its timed steps.",
    ]


def _expected(found: Sequence[Outcome], *, quick: bool) -> list[str]:
    lines = [[e.title, e.expected, e.found, "not judged" if quick else e.holds] for e in expectations(found)]
    return [
        "## Is the expected story seen here?",
        "",
        *table(["model", "expected", "found", "holds"], lines),
        "",
        (
            "Each mode was compiled once: two compile times with less than 20 % between them are not told "
            "apart, and on a CPU neither are those no further apart than default and reduce-overhead, which "
            "compile the same there. Modes are "
            "compared by their speedups over eager of their own processes; the interval has in it what two "
            "processes are assumed to differ by (2 % each)."
        ),
    ]
