"""Every setting through the command line and back: values -> words -> values, job -> command -> job."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, settings
from hypothesis import given as given_by
from hypothesis import strategies as st

import torchduet
from harness.backends import backend_names
from harness.protocol import LIMITED_PHASES
from harness.schema import (
    DTYPES,
    LOSSES,
    SCALES,
    Case,
    CompilerOptions,
    Environment,
    Extras,
    Job,
    Mode,
    Protocol,
)
from harness.settings import Row
from runner.cli.commands import job_command
from runner.cli.parser import given
from runner.errors import UsageError
from runner.plan.checks import run_config
from runner.plan.config import QUICK, USUAL, RunConfig, Selection, Where
from runner.plan.environments.spec import EnvSpec, environments_asked
from runner.plan.environments.spec import named as in_environments
from runner.plan.jobs import OF_TRAINING
from runner.plan.partition import Partition
from runner.plan.settings import read, rows, words
from runner.plan.sweep import AXES, axes_of, points
from tests.command_line import planned, refused

TEXTS = st.text("abcXYZ019_.-", min_size=1, max_size=8).filter(lambda text: text.strip("-"))
PAIRS = st.builds("{}={}".format, TEXTS.filter(str.isidentifier), st.text("ab=, '", max_size=5))
COMPILERS = st.sampled_from([*backend_names(), "a_backend_of_torch"])
# only jobs of a start-up race or of a stream have them
ENGINES = ("protocol.start", "protocol.stored")
SPECIAL: Mapping[str, st.SearchStrategy[Any]] = {
    "protocol.min_rounds": st.integers(1, 30),
    "protocol.max_rounds": st.integers(30, 10**6),
    "protocol.process": st.just(0),  # in a job that is planned it always is
    **dict.fromkeys(ENGINES, st.just("")),
    "protocol.phase_timeouts_s": st.dictionaries(st.sampled_from(LIMITED_PHASES), st.floats(1e-3, 1e9)),
    "options.inductor_config": st.lists(PAIRS, max_size=3).map(tuple),
    "extras.localize": st.sampled_from([False, True, "bitwise"]),
    "extras.shapes": st.sampled_from(["", "batch=4,8", "sequence=64"]),
    "changes.config": st.lists(PAIRS, max_size=3).map(tuple),
    "changes.batch_sizes": st.just(()),  # from a file: the command of a job has --batch-size
    "sweep": st.dictionaries(
        st.sampled_from(AXES), st.lists(st.integers(1, 99), min_size=1, unique=True).map(tuple)
    ).map(lambda axes: tuple(axes.items())),
    "selection.only": st.lists(TEXTS, unique=True, max_size=3).map(tuple),
    "selection.filters": st.lists(TEXTS, max_size=2).map(tuple),
    "selection.excludes": st.lists(TEXTS, max_size=2).map(tuple),
    "suites": st.sampled_from([("tiny_gpt",), ("package.module:make",), ("a:b", "tiny_gpt", "ops")]),
    "modes": st.lists(st.sampled_from(Mode), min_size=1, unique=True).map(
        lambda modes: tuple(sorted(modes, key=list(Mode).index))
    ),
    "devices": st.sampled_from([("cpu",), ("cuda",), ("cuda:1", "cpu")]),
    "environments": st.sampled_from(
        [(), environments_asked(["old=torch==2.2.2 numpy<2", "torch==2.13.0"], None)]
    ),
    "compilers": st.lists(COMPILERS, min_size=1, unique=True).map(
        lambda names: tuple(sorted(names, key=lambda name: name not in backend_names()))
    ),
    "own_compilers": st.just({}),
    "partition": st.sampled_from([Partition(), Partition(index=1, total=3), Partition(index=0, total=1)]),
    "output_dir": st.none() | TEXTS.map(Path),
    "tags": st.lists(TEXTS, unique=True).map(tuple),
    "extras.trajectory": st.just(0) | st.integers(20, 10**9),
    "ray_address": st.none() | TEXTS,
}
BY_TYPE: Mapping[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 10**9),
    float: st.floats(1e-6, 0.999),
}


def strategy_of(path: str, row: Row | None, hint: Any) -> st.SearchStrategy[Any]:
    """By the words it may be, or its type. A setting whose value is neither needs a line above."""
    if path in SPECIAL:
        return SPECIAL[path]
    optional = type(None) in typing.get_args(hint)
    kind = next((part for part in typing.get_args(hint) if part is not type(None)), hint)
    assert row is not None, f"{path} has no row"
    means = [flag.means for flag in row.flags if flag.metavar is None]
    known = means or row.flags[0].kind.words
    if typing.get_origin(hint) is tuple:
        return st.lists(st.sampled_from(known), min_size=1, unique=True).map(tuple)
    choice = st.sampled_from(known) if kind is str else BY_TYPE[kind]
    return st.none() | choice if optional else choice


def strategy(kind: type, prefix: str = "") -> st.SearchStrategy[Any]:
    """Any value of a dataclass of settings: of every field, none left out."""
    hints, parts = typing.get_type_hints(kind), dict[str, st.SearchStrategy[Any]]()
    by_field = {path: row for path, _, row in rows(kind)}
    for field in dataclasses.fields(kind):
        inner = field.default_factory
        if field.name not in by_field:
            assert isinstance(inner, type)
            parts[field.name] = strategy(inner, f"{prefix}{field.name}.")
        else:
            parts[field.name] = strategy_of(f"{prefix}{field.name}", by_field[field.name], hints[field.name])
    return st.builds(kind, **parts)


@settings(deadline=None, max_examples=100)
@given_by(strategy(RunConfig))
@pytest.mark.slow
def test_a_run_to_words_and_back(config: RunConfig) -> None:
    config = replace(config, protocol=possible(config.protocol))
    quick = config.selection.quick
    base = RunConfig(protocol=QUICK if quick else USUAL)
    shown = replace(base, selection=Selection(quick=quick))
    typed = given(words(config, (["--quick"] if quick else [], shown)))
    assert read(base, typed) == config


@settings(deadline=None)
@given_by(strategy(Where))
@pytest.mark.slow
def test_where_to_words_and_back(where: Where) -> None:
    assert read(Where(), given(words(where, ([], Where())))) == where


ONE_CASE = Case(suite="ops", name="x", mode=Mode.TRAINING, batch_size=1, published_batch_size=1)
PLAIN = Job(case=ONE_CASE, device="cpu", dtype="float32", candidates=("eager",))
CASE: Mapping[str, st.SearchStrategy[Any]] = {
    "suite": st.sampled_from(["tiny_gpt", "package.module:make"]),
    "name": st.text(min_size=1, max_size=12).filter(lambda text: "\x00" not in text and text.strip()),
    "mode": st.sampled_from(Mode),
    "batch_size": st.none() | st.integers(1, 10**9),
    "published_batch_size": st.none() | st.integers(1, 10**9),
    "scale": st.sampled_from(SCALES),
    "tags": st.just(("quick",)),
    "loss": st.sampled_from(LOSSES),
    "config": SPECIAL["changes.config"],
    "pretrained": st.booleans(),
    "tolerance": st.none() | st.just(1e-3),
    "skip": st.sampled_from(["", "it is too slow"]),
    "no_skip": st.booleans(),
    "prompt_tokens": st.integers(1, 10**9),
    "new_tokens": st.integers(1, 10**9),
    "sequence": st.none(),  # of the suite
    "point": st.sampled_from([(), ("batch=3",), ("threads=2", "batch=7")]),
    "parameters": st.none(),  # of the suite
    "folder": st.just(""),  # of older records
}
JOB: Mapping[str, st.SearchStrategy[Any]] = {
    "case": st.builds(Case, **CASE),
    "device": st.sampled_from(["cpu", "cuda", "cuda:1"]),
    "dtype": st.sampled_from(DTYPES),
    "candidates": SPECIAL["compilers"],
    "protocol": strategy(Protocol, "protocol."),
    "options": strategy(CompilerOptions, "options."),
    "baseline_dtype": st.none() | st.sampled_from(DTYPES),
    "unavailable": st.just({}),  # found by a question, not by a flag
    "extras": strategy(Extras, "extras."),
    "environments": st.sampled_from(
        [(), tuple(Environment(name=name, python="", asked=f"torch=={name}") for name in ("2.1", "2.2"))]
    ),
    "own_compilers": st.just({}),  # by the compilers' words: tests/cli/test_own_compiler.py
}


@pytest.mark.parametrize(("kind", "strategies"), [(Case, CASE), (Job, JOB)])
def test_the_property_below_is_about_every_field(kind: Any, strategies: Mapping[str, Any]) -> None:
    assert [field.name for field in dataclasses.fields(kind)] == list(strategies)


def possible(protocol: Protocol) -> Protocol:
    """The nearest that may be asked for."""
    either = protocol.accuracy or protocol.performance
    return protocol if either else replace(protocol, accuracy=True)


def possible_job(job: Job) -> Job:
    case, options = job.case, job.options
    own, generates = ":" in case.suite, case.mode is Mode.GENERATE
    case = replace(
        case,
        scale="full" if own or case.pretrained else case.scale,
        loss=case.loss if case.mode is Mode.TRAINING else "own",
        prompt_tokens=case.prompt_tokens if generates else None,
        new_tokens=case.new_tokens if generates else None,
        skip="" if case.no_skip else case.skip,
    )
    options = replace(
        options,
        dynamic_batch=options.dynamic_batch and not options.dynamic_shapes,
        freezing=options.freezing and case.mode is not Mode.TRAINING,
        whole_step=options.whole_step and case.mode is Mode.TRAINING,
    )
    protocol = possible(job.protocol)
    protocol = replace(protocol, keep_dropout=protocol.keep_dropout and own)
    if case.mode is not Mode.TRAINING:
        protocol = replace(protocol, **OF_TRAINING)
    if job.dtype == "float16":
        protocol = replace(protocol, optimizer="none")
    job = replace(job, case=case, options=options, protocol=protocol)
    (job,) = points(job, axes_of(case))
    if job.device == "cpu":  # which --energy refuses
        job = replace(job, extras=replace(job.extras, energy=False))
    if job.environments or not protocol.accuracy:  # which --localize refuses
        job = replace(job, extras=replace(job.extras, localize=False))
    if not protocol.accuracy:
        job = replace(job, extras=replace(job.extras, numerics=False))
    if not protocol.performance:
        job = replace(job, extras=replace(job.extras, profiler_trace=False))
    if not protocol.performance or generates:
        job = replace(job, extras=replace(job.extras, batch_invariant=False))
    dynamic = options.dynamic_shapes or options.dynamic_batch or options.whole_step
    updates = generates or protocol.optimizer != "none"
    if job.environments or job.extras.start_up or case.point or dynamic or updates or not own:
        job = replace(job, extras=replace(job.extras, shapes=""))
    extras, rate = job.extras, Extras().learning_rate
    trains = case.mode is Mode.TRAINING and not (job.environments or extras.shapes or job.dtype == "float16")
    steps = 20 + extras.trajectory if trains and extras.trajectory else 0
    extras = replace(extras, trajectory=steps, learning_rate=extras.learning_rate if steps else rate)
    job = replace(job, extras=extras)
    if job.environments:
        asked = [EnvSpec(name=environment.name, text=environment.asked) for environment in job.environments]
        (job,) = in_environments(asked, [job])
    return job


@settings(deadline=None, max_examples=60)
@given_by(st.builds(Job, **JOB).map(possible_job))
@example(replace(PLAIN, protocol=replace(QUICK, processes=5, max_memory_bytes=123456789, fixed_batch=True)))
def test_job_to_command_to_job_is_the_identity(job: Job) -> None:
    tf32 = "tf32" in job.dtype or "tf32" in (job.baseline_dtype or "")
    assume(not (job.device == "cpu" and tf32))
    assume((job.protocol.repeat or 100) >= job.protocol.min_rounds)
    command = job_command(job)
    (again,) = planned(command, job.case)
    assert (again, job_command(again)) == (job, command)


# -- what the command line refuses, Python refuses -----------------------------------------------------
HOLDERS: Mapping[str, Any] = {"protocol": Protocol, "options": CompilerOptions, "extras": Extras}


@pytest.mark.parametrize(
    ("typed", "path", "value", "named"),
    [
        ("--dtypes=tf32", "dtype", "tf32", "--dtypes"),
        ("--dtypes=bf61", "dtype", "bf61", "--dtypes"),
        ("--devices=cupid", "device", "cupid", "-d/--devices"),
        ("--repeat=0", "protocol.repeat", 0, "-n/--repeat"),
        ("--processes=-1", "protocol.processes", -1, "--processes"),
        ("--protocol=max_rounds=3", "protocol.max_rounds", 3, "--protocol: max_rounds"),
        ("--phase-timeout=dream=3", "protocol.phase_timeouts_s", {"dream": 3.0}, "--phase-timeout"),
        ("--inductor-config=x", "options.inductor_config", ("x",), "--inductor-config"),
        ("--allocator=jemaloc", "extras.allocator", "jemaloc", "--allocator"),
    ],
)
def test_python_refuses_what_the_command_line_refuses(typed: str, path: str, value: Any, named: str) -> None:
    argument, _, name = path.partition(".")
    holds = HOLDERS[argument](**{name: value}) if name else value
    with pytest.raises(UsageError) as typed_wrong:
        run_config(given(["--training", "-dcpu", typed]))
    with pytest.raises(UsageError) as given_wrong:
        torchduet.compare("harness.probes.toy:make", **{"device": "cpu", argument: holds})
    sentence = str(given_wrong.value)
    assert sentence.startswith(path)
    ours = sentence.replace("device='cpu'", "--devices=cpu").removeprefix(path)
    assert ours == str(typed_wrong.value).removeprefix(named)


def test_settings_that_do_not_fit_are_named_as_they_are_written_in_python() -> None:
    for arguments, says in (
        (
            {"options": CompilerOptions(freezing=True)},
            "options.freezing=True makes the weights constants: it is for mode='inference' only",
        ),
        (
            {"protocol": Protocol(accuracy=False, performance=False)},
            "protocol.performance=False and protocol.accuracy=False exclude each other; leave both out",
        ),
        (
            {"options": CompilerOptions(fuser="x")},
            "options.fuser: 'x' is not a valid value; give 'nnc' or 'nvfuser', or leave it out",
        ),
        ({"protocol": Protocol(isolate="yes")}, "protocol.isolate: 'yes' is not a valid value"),  # type: ignore[arg-type]
    ):
        with refused("", says):
            torchduet.compare("harness.probes.toy:make", **arguments)


NOT_IDENTIFYING = {
    *("accuracy", "performance", "parity", "seed", "threads", "repeat", "min_rounds", "max_rounds"),
    *("max_measure_s", "ci_width", "noise_threshold", "alpha", "min_sample_s", "processes", "timeout_s"),
    *("phase_timeouts_s", "max_memory_bytes", "isolate", "fixed_batch", "approximate_sqnr"),
}


def test_every_setting_of_a_job_says_whether_it_makes_another_measurement() -> None:
    """A new setting is either marked in its row, or added here: results are compared by this."""
    both = (*rows(Protocol), *rows(CompilerOptions))
    assert {name for name, _, row in both if row is not None and not row.identifies} == NOT_IDENTIFYING
