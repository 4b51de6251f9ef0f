"""What is said of records: words that are data, warm caches, measured peaks."""

from string import Formatter

import pytest

from harness.loading.toml_file import read_toml
from harness.schema import Scalar, Status
from runner.analysis.caveats import HOLDS, NAMES, WORDS
from runner.analysis.columns import COMPUTED, columns, own_columns
from runner.analysis.derive import summarize
from runner.analysis.findings import FACTS, LIMITS, WHEN, Rule, rules
from tests.factories import make_job, make_record


def named(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule.title} {rule.when}")
def test_a_warning_names_what_there_is(rule: Rule) -> None:
    assert bool(rule.when) != bool(rule.status)
    assert {Status(word) for word in rule.status} or rule.when in WHEN
    assert named(rule.title) <= set(LIMITS)
    assert named(rule.sentence) | named(rule.advice) <= {*FACTS, *columns()}


def test_nothing_that_warnings_and_caveats_name_is_left_over() -> None:
    texts = [text for rule in rules() for text in (rule.title, rule.sentence, rule.advice)]
    used = {name for text in texts for name in named(text)}
    assert {*FACTS, *LIMITS} <= used
    assert {rule.when for rule in rules() if rule.when} == set(WHEN)
    assert read_toml(WORDS).keys() == HOLDS.keys() >= NAMES.keys()


def test_a_computed_column_has_no_place() -> None:
    assert {column.name for column in own_columns() if column.source == COMPUTED.get(column.name)} == set(
        COMPUTED
    )


# -- warm caches ------------------------------------------------------------
@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ([{"hits": 2, "misses": 0, "saved_s": 12.2}, {"hits": 1, "misses": 0, "saved_s": 3.1}],
         "Compile caches were warm for 2 of 2 compilations: compiling what the caches held took about 15 s."),
        ([{"hits": 2, "misses": 0}, {"hits": 0, "misses": 1}],
         "Compile caches were warm for 1 of 2 compilations: with cold caches compilation takes longer."),
        ([{"hits": 0, "misses": 1}], None),
    ],
)  # fmt: skip
def test_what_caches_saved(metrics: list[dict[str, Scalar]], sentence: str | None) -> None:
    counters = [{f"compile_cache_{name}": value for name, value in saved.items()} for saved in metrics]
    records = [make_record(make_job(f"m{n}"), metrics=saved) for n, saved in enumerate(counters)]
    caveats = [text for text in summarize(records).caveats if "caches" in text]
    assert caveats == ([sentence] if sentence else [])
