"""The words that are data: every name in them is known, and every name that is known is used."""

from string import Formatter

import pytest

from harness.loading.toml_file import read_toml
from harness.schema import Status
from runner.analysis.caveats import CAVEATS, WORDS
from runner.analysis.columns import COMPUTED, columns, own_columns
from runner.analysis.findings import FACTS, LIMITS, WHEN, Rule, rules


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
    assert read_toml(WORDS).keys() == CAVEATS.keys()


def test_a_computed_column_has_no_place() -> None:
    assert {column.name for column in own_columns() if column.source == COMPUTED.get(column.name)} == set(
        COMPUTED
    )
