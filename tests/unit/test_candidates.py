"""Candidates with settings of their own: their names, and their ratio to the plain candidate."""

from dataclasses import replace

import pytest

from harness.backends.settings.candidates import compiler_of, named, parts_of, plain_of
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.cli.commands import job_command
from tests.command_line import config_of_words
from tests.factories import known, make_job, make_record


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
    assert parts_of(name) == (compiler, settings)
    assert parts_of(named(*parts_of(name))) == (compiler, settings)


def test_the_plain_candidate_is_of_the_same_environment() -> None:
    assert plain_of("inductor[a=1]@new") == "inductor@new"
    assert plain_of("inductor@new") == "inductor@new"
    assert compiler_of("aot_eager[dynamo.x=1]") == "aot_eager"


def test_the_flag_reads_them_in_one_form() -> None:
    asked = "inductor,inductor[fallback_random = True,freezing=True], aot_eager"
    asked_for = config_of_words(["--training", f"--compilers={asked}"]).compilers
    assert asked_for == ("inductor", "inductor[fallback_random=True,freezing=True]", "aot_eager")


def test_the_command_and_the_ratio_to_the_plain_candidate() -> None:
    name = "inductor[freezing=True,cpp.threads=1]"
    job = make_job(candidates=("inductor", name))
    assert f"'--compilers={name}'" in job_command(job, (name,))
    records = [make_record(job, candidate) for candidate in job.candidates]
    faster = tuple(seconds / 2 for seconds in known(records[0].samples).candidate_s)
    records[1] = replace(records[1], samples=replace(known(records[0].samples), candidate_s=faster))
    plain, tuned = summarize(records).comparisons
    assert columns()["over_plain"].value(plain) is None
    assert columns()["over_plain"].value(tuned) == pytest.approx(2.0)
    assert columns()["over_plain_low"].value(tuned) is not None
