"""From a configuration to jobs, the command that makes one job again, and the parts of a plan."""

import dataclasses
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schema import Case, Job, Mode, Setting
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.config import Changes, RunConfig, Selection, _suite
from runner.plan.jobs import Catalog, changed_case, plan
from runner.plan.partition import Partition, balanced, our_part
from runner.plan.settings import read
from tests.cli.command import TOYS
from tests.factories import Capture, make_job


def case(name: str, *tags: str) -> Case:
    return make_job(name, suite="tiny_gpt", published_batch_size=64, tags=tags).case


OFFERED = (case("small", "quick"), case("middle"), case("large", "on_request"))


def find(suite: str, patterns: Sequence[str]) -> dict[str, tuple[str, ...] | str]:
    """The library of a made up suite: it has "beyond" and "middle", and a name that is no model."""
    known: dict[str, tuple[str, ...] | str] = {
        "beyond": ("beyond",),
        "*d*": ("beyond", "middle"),
        "Tokenizer": "Tokenizer is no model",
    }
    return {pattern: known.get(pattern, ()) for pattern in patterns}


def beyond(suite: str, setting: Setting, names: Sequence[str]) -> tuple[Case, ...]:
    return tuple(
        dataclasses.replace(case(name), published_batch_size=None, scale=setting.scale) for name in names
    )


MADE_UP = Catalog(cases=lambda *_: OFFERED, find=find, cases_of=beyond)


def config(**changes: Any) -> RunConfig:
    given = {"suites": ("tiny_gpt",), "modes": (Mode.TRAINING,), "devices": ("cpu",), **changes}
    return RunConfig(**{"compilers": ("eager", "inductor"), **given})


def names(**selection: Any) -> list[str]:
    return [job.case.name for job in plan(config(selection=Selection(**selection)), MADE_UP)]


def test_one_job_for_each_case_device_and_precision_with_all_candidates() -> None:
    jobs = plan(config(dtypes=("float32", "amp"), devices=("cpu", "cuda:1")), MADE_UP)
    assert len({job.key for job in jobs}) == len(jobs) == 2 * 2 * 2
    assert all(job.candidates == ("eager", "inductor") for job in jobs)


def by_mode(**models: str) -> Catalog:
    """A suite that offers these models in each mode."""

    def offered(_: str, setting: Setting) -> tuple[Case, ...]:
        names = models.get(setting.mode.value, "").split()
        return tuple(dataclasses.replace(case(name), mode=setting.mode) for name in names)

    return Catalog(cases=offered, find=lambda *_: {}, cases_of=lambda *_: ())


BOTH = (Mode.TRAINING, Mode.INFERENCE)


def test_of_several_modes_each_has_its_jobs() -> None:
    catalog = by_mode(training="small middle", inference="small middle")
    jobs = plan(config(modes=BOTH), catalog)
    assert [job.case.mode.value for job in jobs] == ["training"] * 2 + ["inference"] * 2
    assert len({job.key for job in jobs}) == 4
    with pytest.raises(UsageError, match="--generate: tiny_gpt has no model for it"):
        plan(config(modes=(Mode.TRAINING, Mode.GENERATE)), catalog)


def test_selection() -> None:
    assert (names(), names(only=("large",))) == (["small", "middle"], ["large"])
    assert (names(filters=("^m", "large")), names(excludes=("small",))) == (["middle", "large"], ["middle"])
    assert (names(quick=True), names(quick=True, only=("middle",))) == (["small"], ["middle"])


def test_quick_says_what_it_leaves_out_of_a_suite_of_ones_own(capsys: Capture) -> None:
    untagged = Catalog(cases=lambda *_: tuple(map(case, "abc")))
    quick = config(selection=Selection(quick=True), suites=("mine.py",))
    assert [job.case.name for job in plan(quick, untagged)] == ["a", "b"]
    said = "note: --quick: the first 2 of 3 models of mine.py (training), as none has the tag 'quick'\n"
    assert capsys.readouterr().err == said


def test_names_beyond_the_list_come_after_it() -> None:
    assert names(only=("beyond", "small")) == ["small", "beyond"]
    assert names(only=("*d*",)) == ["middle", "beyond"]
    assert names(only=("*d*",), excludes=("bey",)) == ["middle"]
    assert names(only=("s*", "mi??le")) == ["small", "middle"]


def test_what_was_asked_for_is_in_the_case_and_in_its_key() -> None:
    changes = Changes(loss="sum", config=("a.b=3",), no_skip=True)
    plain, changed = (plan(config(changes=c), MADE_UP)[0] for c in (Changes(), changes))
    assert (changed.case.loss, changed.case.config) == ("sum", ("a.b=3",))
    assert plain.key != changed.key
    catalog = by_mode(training="small", inference="small")
    jobs = plan(config(modes=BOTH, changes=Changes(loss="sum")), catalog)
    assert [job.case.loss for job in jobs] == ["sum", "own"]
    case = dataclasses.replace(make_job().case, loss="sum", config=("a.b=3",), pretrained=True)
    assert changed_case(case, Changes()) == case


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        *(({"only": ("smal",)}, "did you mean small?"), ({"only": ("small", "zzz")}, "zzz")),
        *(({"only": ("zz*",)}, r"zz\*"), ({"only": ("Tokenizer",)}, "--only: Tokenizer is no model")),
        ({"filters": ("^midle",)}, "did you mean middle?"),
        ({"excludes": (".",)}, "every model is left out"),
    ],
)
def test_a_selection_of_nothing_is_an_error(selection: dict[str, tuple[str, ...]], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        names(**selection)


def test_a_model_that_only_another_mode_has_is_named_with_this_mode() -> None:
    catalog = by_mode(training="trained", inference="trained run_alone")
    only = Selection(only=("run_alone",))
    with pytest.raises(UsageError, match="run_alone cannot be run with --training; use --inference"):
        plan(config(selection=only), catalog)
    (job,) = plan(config(selection=only, modes=(Mode.INFERENCE,)), catalog)
    assert job.case.name == "run_alone"


def test_a_batch_size_is_for_a_model_that_a_suite_has() -> None:
    sizes = (("small", 2), ("large", 3), ("beyond", 4))
    jobs = plan(config(changes=Changes(batch_sizes=sizes)), MADE_UP)
    assert {job.case.name: job.case.batch_size for job in jobs} == {"small": 2, "middle": 8}
    with pytest.raises(UsageError, match="--batch-size-file: there is no model called 'smal'; did you"):
        plan(config(changes=Changes(batch_sizes=(*sizes, ("smal", 5)))), MADE_UP)


# -- batch sizes ------------------------------------------------------------
def written(folder: Path, text: str) -> Path:
    (path := folder / "sizes.txt").write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def batch_sizes(path: Path) -> tuple[tuple[str, int], ...]:
    return read(Changes(), {"batch_size_file": str(path)}).batch_sizes


def test_both_ways_of_writing_and_comments(tmp_path: Path) -> None:
    path = written(tmp_path, "# A100\nresnet18,64\n\nBertForMaskedLM 8  # half\n  vit , 2\n")
    assert batch_sizes(path) == (("resnet18", 64), ("BertForMaskedLM", 8), ("vit", 2))


@pytest.mark.parametrize(
    "line",
    ["resnet18", "resnet18,many", "resnet18,0", "resnet18,-2", "a,b,3", ",3", ",", f"vit,{'9' * 5000}"],
)
def test_any_other_line_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--batch-size-file: line 2 of .*sizes.txt is not"):
        batch_sizes(written(tmp_path, f"fine,1\n{line}\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [("#\n\n", "has no line"), ("vit,2\n\nvit 4\n", "line 3 .* has vit again"), ("\udcff", "it is not text")],
)
def test_a_file_that_says_nothing_or_two_things_or_is_no_text(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--batch-size-file: .*{says}"):
        batch_sizes(written(tmp_path, text))


# -- parts of a plan ------------------------------------------------------------
def plan_of(skips: list[bool], suite: str = "toys") -> list[Job]:
    return [
        make_job(f"m{i}", suite=suite, skip="too large" if skip else None) for i, skip in enumerate(skips)
    ]


def named(parts: tuple[tuple[Job, ...], ...]) -> list[list[str]]:
    return [[job.case.name for job in part] for part in parts]


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 12))
def test_the_parts_are_the_plan_with_equally_many_jobs_in_its_order(skips: list[bool], total: int) -> None:
    jobs = plan_of(skips)
    parts = balanced(jobs, total)
    assert sorted(jobs.index(job) for part in parts for job in part) == list(range(len(jobs)))
    assert all(list(part) == sorted(part, key=jobs.index) for part in parts)
    for counts in ([len(part) for part in parts], [sum(not j.case.skip for j in part) for part in parts]):
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 5), st.integers())
def test_neither_order_nor_folder_changes_a_part(skips: list[bool], total: int, seed: int) -> None:
    parts = named(balanced(plan_of(skips, "/home/a/mine.py"), total))
    assert named(balanced(plan_of(skips, "/somewhere/else/mine.py"), total)) == parts
    other = plan_of(skips)
    random.Random(seed).shuffle(other)
    here = named(balanced(plan_of(skips), total))
    assert [set(part) for part in named(balanced(other, total))] == [set(part) for part in here]


def test_the_parts_of_a_plan_do_not_change_between_versions() -> None:
    assert named(balanced(plan_of([False] * 7), 3)) == [["m2", "m3", "m5"], ["m0", "m6"], ["m1", "m4"]]


@pytest.mark.parametrize("action", [["--list"], ["--print-run-commands"], []])
def test_an_empty_part_is_a_sentence_and_no_error(capsys: Capture, action: list[str], tmp_path: Path) -> None:
    part = ["--total-partitions=9", "--partition-id=5", f"--output-dir={tmp_path / 'run'}"]
    assert main([f"--suites={TOYS}", "--training", *action, *part]) == 0
    assert capsys.readouterr() == ("", "Nothing to do in part 5 of 9: the plan has 3 jobs in all.\n")
    assert not list(tmp_path.iterdir())
    assert our_part(Partition(index=1, total=2), [make_job()]) == ()
    assert our_part(Partition(index=1, total=10**12), [make_job()]) == ()
    assert capsys.readouterr().err.endswith("the plan has 1 job in all.\n")


def test_the_list_shows_the_part_that_is_measured(capsys: Capture) -> None:
    words = ["--training", "--suites=tiny_gpt", "-dcpu", "--total-partitions=2", "--partition-id=0"]
    words += ["--envs=a=torch==2.2.2", "--envs=b=torch==2.3.0"]
    assert main(["--list", *words]) == 0
    listed = {line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert main(["--print-run-commands", *words]) == 0
    assert listed == {*re.findall(r"--only=(\S+)", capsys.readouterr().out)}


def test_a_suite_file_whose_path_has_a_comma_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a,b.py"
    file.touch()
    with pytest.raises(ValueError, match="has a comma, which separates names; move the file"):
        _suite(str(file))


def test_a_batch_size_may_be_of_a_model_of_any_mode_of_the_plan() -> None:
    catalog = by_mode(training="small", inference="small middle")
    changes, selection = Changes(batch_sizes=(("middle", 4),)), Selection(only=("small",))
    assert len(plan(config(modes=BOTH, changes=changes, selection=selection), catalog)) == 2


@pytest.mark.parametrize("name", ["BertForMaskedLM", "resnet50"])
def test_a_model_of_another_suite_is_sent_there(name: str) -> None:
    """The libraries' own near names are of other models."""
    catalog = dataclasses.replace(
        Catalog(), find=lambda _, patterns: dict.fromkeys(patterns, "no such model")
    )
    with pytest.raises(UsageError, match=rf"--only: {name} is a model of \w+; use --suites="):
        plan(config(selection=Selection(only=(name,)), suites=("tiny_gpt",)), catalog)
