"""From a configuration to jobs, and the command that makes one job again."""

import dataclasses
from collections.abc import Sequence

import pytest

from harness.schema import Case, Mode, Protocol, Setting
from runner.errors import UsageError
from runner.plan.config import Changes, RunConfig, Selection
from runner.plan.jobs import Catalog, plan


def case(name: str, *tags: str) -> Case:
    return Case(
        suite="tiny_gpt", name=name, mode=Mode.TRAINING, batch_size=8, published_batch_size=64, tags=tags
    )


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


def config(**changes: object) -> RunConfig:
    base = RunConfig(
        suites=("tiny_gpt",),
        modes=(Mode.TRAINING,),
        devices=("cpu",),
        dtypes=("float32",),
        compilers=("eager", "inductor"),
        selection=Selection(),
        changes=Changes(),
        protocol=Protocol(),
        output_dir=None,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def names(**selection: object) -> list[str]:
    chosen = config(selection=Selection(**selection))  # type: ignore[arg-type]
    return [job.case.name for job in plan(chosen, MADE_UP)]


def test_one_job_for_each_case_device_and_precision_with_all_candidates() -> None:
    jobs = plan(config(dtypes=("float32", "amp"), devices=("cpu", "cuda:1")), MADE_UP)
    assert len({job.key for job in jobs}) == len(jobs) == 2 * 2 * 2
    assert all(job.candidates == ("eager", "inductor") for job in jobs)


def test_of_several_modes_each_has_its_jobs() -> None:
    def offered(_: str, setting: Setting) -> tuple[Case, ...]:
        return tuple(dataclasses.replace(one, mode=setting.mode) for one in OFFERED)

    def none_generates(suite: str, setting: Setting) -> tuple[Case, ...]:
        return () if setting.mode is Mode.GENERATE else offered(suite, setting)

    both = config(modes=(Mode.TRAINING, Mode.INFERENCE))
    jobs = plan(both, dataclasses.replace(MADE_UP, cases=offered))
    assert [job.case.mode.value for job in jobs] == ["training"] * 2 + ["inference"] * 2
    assert len({job.key for job in jobs}) == 4
    with pytest.raises(UsageError, match="--generate: tiny_gpt has no model for it"):
        plan(config(modes=(Mode.TRAINING, Mode.GENERATE)), dataclasses.replace(MADE_UP, cases=none_generates))


def test_selection() -> None:
    assert names() == ["small", "middle"]
    assert names(only=("large",)) == ["large"]
    assert names(filters=("^m", "large")) == ["middle", "large"]
    assert names(excludes=("small",)) == ["middle"]
    assert names(quick=True) == ["small"]
    assert names(quick=True, only=("middle",)) == ["middle"]


def test_names_beyond_the_list_come_after_it() -> None:
    assert names(only=("beyond", "small")) == ["small", "beyond"]
    assert names(only=("*d*",)) == ["middle", "beyond"]
    assert names(only=("*d*",), excludes=("bey",)) == ["middle"]
    assert names(only=("s*", "mi??le")) == ["small", "middle"]


def test_sizes_from_a_file_overrule_those_of_the_models_it_names() -> None:
    changes = Changes(batch_sizes=(("middle", 2),))
    jobs = plan(config(changes=changes), MADE_UP)
    assert {job.case.name: job.case.batch_size for job in jobs} == {"small": 8, "middle": 2}


def test_what_was_asked_for_is_in_the_case_and_in_its_key() -> None:
    changes = Changes(loss="sum", config=("a.b=3",), no_skip=True)
    plain, changed = (plan(config(changes=c), MADE_UP)[0] for c in (Changes(), changes))
    assert (changed.case.loss, changed.case.config) == ("sum", ("a.b=3",))
    assert plain.key != changed.key


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ({"only": ("smal",)}, "did you mean small?"),
        ({"only": ("small", "zzz")}, "zzz"),
        ({"only": ("zz*",)}, r"zz\*"),
        ({"only": ("Tokenizer",)}, "--only: Tokenizer is no model"),
        ({"filters": ("^midle",)}, "did you mean middle?"),
        ({"excludes": (".",)}, "every model is left out"),
    ],
)
def test_a_selection_of_nothing_is_an_error(selection: dict[str, tuple[str, ...]], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")):
        names(**selection)


def test_a_model_that_only_another_mode_has_is_named_with_this_mode() -> None:
    def cases(suite: str, setting: Setting) -> tuple[Case, ...]:
        names = {Mode.TRAINING: ("trained",), Mode.INFERENCE: ("trained", "run_alone"), Mode.GENERATE: ()}
        return tuple(dataclasses.replace(case(name), mode=setting.mode) for name in names[setting.mode])

    catalog = dataclasses.replace(MADE_UP, cases=cases, find=lambda *_: {})
    asked = config(selection=Selection(only=("run_alone",)))
    with pytest.raises(UsageError, match="run_alone cannot be run with --training; use --inference"):
        plan(asked, catalog)
    assert [job.case.name for job in plan(dataclasses.replace(asked, modes=(Mode.INFERENCE,)), catalog)] == [
        "run_alone"
    ]


def test_a_batch_size_is_for_a_model_that_a_suite_has() -> None:
    sizes = (("small", 2), ("large", 3), ("beyond", 4))
    jobs = plan(config(changes=Changes(batch_sizes=sizes), selection=Selection(only=("small",))), MADE_UP)
    assert [job.case.batch_size for job in jobs] == [2]
    with pytest.raises(UsageError, match="--batch-size-file: there is no model called 'smal'; did you"):
        plan(config(changes=Changes(batch_sizes=(*sizes, ("smal", 5)))), MADE_UP)
