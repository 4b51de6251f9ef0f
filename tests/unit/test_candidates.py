"""Candidates with settings of their own: their names, and their ratio to the plain candidate."""

from dataclasses import replace

import pytest

from harness.backends.settings.candidates import compiler_of, named, parts_of, plain_of
from harness.schema import Status
from runner.analysis.derive import summarize
from runner.analysis.results import PAIRS
from runner.analysis.statistics import wilson
from runner.cli.commands import job_command
from tests.command_line import config_of_words
from tests.factories import known, make_job, together, with_samples


@pytest.mark.parametrize(
    ("name", "compiler", "settings"),
    [
        ("inductor", "inductor", ()),
        ("inductor[freezing=True]", "inductor", ("freezing=True",)),
        ("inductor[ a = 1 , cpp.threads=2]", "inductor", ("a=1", "cpp.threads=2")),
        ("inductor[sizes=1,2,a=3]", "inductor", ("sizes=1,2", "a=3")),
        ("my[1]/file.py:make", "my[1]/file.py:make", ()),
    ],
)
def test_a_name_is_a_compiler_and_its_settings(name: str, compiler: str, settings: tuple[str, ...]) -> None:
    assert (parts_of(name), parts_of(named(*parts_of(name)))) == ((compiler, settings), (compiler, settings))


def test_the_plain_candidate_is_of_the_same_environment() -> None:
    assert (plain_of("inductor[a=1]@new"), plain_of("inductor@new")) == ("inductor@new", "inductor@new")
    assert compiler_of("aot_eager[dynamo.x=1]") == "aot_eager"


def test_settings_are_in_the_flag_and_in_the_command() -> None:
    asked = "inductor,inductor[fallback_random = True,freezing=True], aot_eager"
    asked_for = config_of_words(["--training", f"--compilers={asked}"]).compilers
    assert asked_for == ("inductor", "inductor[fallback_random=True,freezing=True]", "aot_eager")
    name = "inductor[freezing=True,cpp.threads=1]"
    job = make_job(candidates=("inductor", name))
    assert f"'--compilers={name}'" in job_command(job, (name,))


# -- candidate against candidate ---------------------------------------------------------------
def test_rounds_are_joined_by_their_number_where_eager_took_equally_long() -> None:
    """A coarse clock gives eager one time in every round: the times name no round, the numbers do."""
    records = [
        with_samples(record, baseline_s=(1.0,) * 40, round_index=tuple(range(place, 40 + place)))
        for place, record in enumerate(together("a", {"inductor": 0.5, "torchscript": 1.0}))
    ]
    (pair,) = summarize(records).of(PAIRS)
    assert known(pair.estimate).n == 39
    assert known(pair.estimate).factor == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("numbers", [(), tuple(range(40))])  # sessions count from 0, each
def test_candidates_of_other_workers_share_no_round_and_failures_no_pair(numbers: tuple[int, ...]) -> None:
    both = together("a", {"inductor": 0.5, "torchscript": 1.0})
    first, second = (with_samples(record, round_index=numbers) for record in both)
    apart = tuple(seconds * 1.01 for seconds in known(second.samples).baseline_s)
    assert len(summarize([first, second]).of(PAIRS)) == 1
    assert summarize([first, with_samples(second, baseline_s=apart)]).of(PAIRS) == ()
    assert summarize([first, replace(second, status=Status.FAIL_ACCURACY)]).of(PAIRS) == ()


def test_wilsons_interval() -> None:
    # Brown, Cai & DasGupta 2001: 0 of 10 and 5 of 10
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="record"):
        wilson(0, 0)
