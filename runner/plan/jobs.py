"""From a configuration to the list of jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

from harness.devices import of, type_of
from harness.loading.suite_files import cases_of, load_suite, suite_names
from harness.schema import NEW_TOKENS, PROMPT_TOKENS, Case, Extras, Job, Mode, Protocol, Setting
from runner.errors import UsageError, unknown
from runner.plan.config import BATCH_SIZE_FILE, Changes, RunConfig
from runner.plan.partition import balanced
from runner.plan.probe import LIMIT_S, ask_suite, limit_for, listed_cases
from runner.plan.sweep import check_stream, points

ON_REQUEST = "on_request"  # tag of a case that is so large that it only runs if it is named
QUICK = "quick"
QUICKLY = 2  # cases of a suite without this tag
# settings that only training uses, with their defaults: the jobs of other modes have these
OF_TRAINING = {name: getattr(Protocol(), name) for name in ("optimizer", "use_eval_mode")}
GLOB = re.compile(r"[*?\[]")
# name or glob -> the matching names in a suite's library, or a sentence why there are none
Answers = Mapping[str, "tuple[str, ...] | str"]


def setting_for(config: RunConfig, device: str, mode: Mode) -> Setting:
    """With the requested scale. Default: ``full`` on a GPU or with published weights, else ``small``."""
    large = config.changes.pretrained or (config.changes.scale is None and of(device).accelerated)
    scale = "full" if large else config.changes.scale or "small"
    return Setting(mode=mode, device_type=type_of(device), scale=scale)


def suite_cases(
    name: str, setting: Setting, models: Sequence[str] | None = None, *, limit_s: float = LIMIT_S
) -> tuple[Case, ...]:
    """All cases of a suite, or those of these models. A user's own file is listed in another process."""
    if name.endswith(".py"):
        return listed_cases(name, setting, models, limit_s=limit_s)
    try:
        return cases_of(name, setting, models)
    except LookupError as error:
        if type(error) is not LookupError:
            raise
        raise UsageError(f"--suites: {error}") from None


def _find(name: str, patterns: Sequence[str]) -> Answers:
    """The names in the suite's library that match these patterns; {} if the suite has no ``find``."""
    return ask_suite(name, patterns) if name.endswith(".py") or hasattr(load_suite(name), "find") else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """How a plan gets its cases. Tests replace these functions."""

    cases: Callable[[str, Setting], tuple[Case, ...]] = suite_cases
    find: Callable[[str, Sequence[str]], Answers] = _find
    cases_of: Callable[[str, Setting, Sequence[str]], tuple[Case, ...]] = suite_cases


def catalog_for(config: RunConfig) -> Catalog:
    """Lists each suite once in each setting."""
    return Catalog(cases=cache(partial(suite_cases, limit_s=limit_for(config.protocol))))


def plan(config: RunConfig, catalog: Catalog | None = None) -> tuple[Job, ...]:
    """One job for each mode, selected case, device type and precision, in a stable order."""
    catalog = catalog or catalog_for(config)
    jobs = [job for mode in config.modes for job in _of_mode(mode, config, catalog)]
    _check_batch_sizes(config, catalog, {job.case.name for job in jobs})
    return spread(jobs, config.devices)


def _check_batch_sizes(config: RunConfig, catalog: Catalog, planned: AbstractSet[str]) -> None:
    """``UsageError`` for a model of ``--batch-size-file`` that no suite of the plan has."""
    listed = dict.fromkeys(name for mode in config.modes for name in _names(config, mode, catalog))
    unlisted = [name for name, _ in config.changes.batch_sizes if name not in {*planned, *listed}]
    for suite in config.suites if unlisted else ():
        beyond = catalog.find(suite, unlisted)
        unlisted = [name for name in unlisted if name not in beyond.get(name, ())]
    if unlisted:
        raise unknown(BATCH_SIZE_FILE.long, unlisted[0], "model", listed)


def _of_mode(mode: Mode, config: RunConfig, catalog: Catalog) -> list[Job]:
    named = _named(config, mode, catalog)
    protocol, options, extras = config.protocol, config.options, config.extras
    if mode is not Mode.TRAINING:
        protocol = dataclasses.replace(protocol, **OF_TRAINING)
        options = dataclasses.replace(options, whole_step=False)
        extras = dataclasses.replace(extras, trajectory=0, learning_rate=Extras().learning_rate)
    jobs: list[Job] = []
    for suite in config.suites:
        if not named[suite] and not catalog.cases(suite, setting_for(config, config.devices[0], mode)):
            raise UsageError(f"--{mode.value}: {suite} has no model for it")
        for device in _kinds(config.devices):
            setting = setting_for(config, device, mode)
            for case in _selected(suite, config, setting, named[suite], catalog):
                changed = changed_case(case, config.changes)
                for dtype in config.dtypes:
                    job = Job(
                        case=changed,
                        device=device,
                        dtype=dtype,
                        candidates=config.compilers,
                        protocol=protocol,
                        options=options,
                        baseline_dtype=config.baseline_dtype,
                        extras=extras,
                        own_compilers=dict(config.own_compilers),
                    )
                    check_stream(job)
                    jobs += points(job, config.sweep)
    if not jobs:
        raise UsageError(_nothing_selected(config, mode, catalog))
    return jobs


def spread(jobs: Sequence[Job], devices: Sequence[str]) -> tuple[Job, ...]:
    """Gives each device ("cuda:0") of a type equally many of its jobs; a resumed run has the same plan."""
    device_of: dict[str, str] = {}
    for first, indices in _kinds(devices).items():
        parts = balanced([job for job in jobs if job.device == first], len(indices))
        device_of |= {job.key: device for device, part in zip(indices, parts, strict=True) for job in part}
    return tuple(dataclasses.replace(job, device=device_of[job.key]) for job in jobs)


def _kinds(devices: Sequence[str]) -> dict[str, list[str]]:
    """First device of each type -> all devices of this type."""
    kinds: dict[str, list[str]] = {}
    for device in devices:
        kinds.setdefault(type_of(device), []).append(device)
    return {indices[0]: indices for indices in kinds.values()}


def changed_case(case: Case, changes: Changes) -> Case:
    """The case with the settings that the user changed."""
    loss = case.loss if changes.loss == "own" else changes.loss
    usual = ("prompt_tokens", PROMPT_TOKENS), ("new_tokens", NEW_TOKENS)
    ours: dict[str, Any] = {
        name: getattr(changes, name) or getattr(case, name) or tokens[case.scale] for name, tokens in usual
    }
    return dataclasses.replace(
        case,
        batch_size=dict(changes.batch_sizes).get(case.name) or changes.batch_size or case.batch_size,
        loss=loss if case.mode is Mode.TRAINING else "own",  # other steps have none
        config=changes.config or case.config,
        pretrained=changes.pretrained or case.pretrained,
        skip="" if changes.no_skip else case.skip,
        no_skip=changes.no_skip and bool(case.skip),
        **(ours if case.mode is Mode.GENERATE else {}),
    )


# -- names --------------------------------------------------------------------


def _names(config: RunConfig, mode: Mode, catalog: Catalog) -> list[str]:
    """The names of all models that the suites list for this mode."""
    setting = setting_for(config, config.devices[0], mode)
    return [case.name for suite in config.suites for case in catalog.cases(suite, setting)]


def _named(config: RunConfig, mode: Mode, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Suite -> the names that ``--only`` selects in it, in the given order."""
    only, setting = config.selection.only, setting_for(config, config.devices[0], mode)
    listed = {suite: [case.name for case in catalog.cases(suite, setting)] for suite in config.suites}
    fitting = {
        (suite, pattern): [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        for suite, names in listed.items()
        for pattern in only
    }
    beyond = [p for p in only if GLOB.search(p) or not any(fitting[suite, p] for suite in listed)]
    answers = {suite: catalog.find(suite, beyond) if beyond else {} for suite in listed}
    named: dict[str, dict[str, None]] = {suite: {} for suite in listed}
    for pattern in only:
        more = {suite: answer.get(pattern, ()) for suite, answer in answers.items()}
        sentences = [names for names in more.values() if isinstance(names, str)]
        for suite, names in more.items():
            fitting[suite, pattern] += () if isinstance(names, str) else names
            named[suite].update(dict.fromkeys(fitting[suite, pattern]))
        if not any(fitting[suite, pattern] for suite in listed):
            raise _no_model(config, mode, catalog, pattern, sentences)
    return {suite: tuple(names) for suite, names in named.items()}


def _no_model(config: RunConfig, mode: Mode, catalog: Catalog, pattern: str, said: list[str]) -> UsageError:
    """Why no suite has the model of ``--only``. ``said``: what the suites' libraries say."""
    setting = setting_for(config, config.devices[0], mode)
    for suite in (name for name in suite_names() if name not in config.suites):
        with contextlib.suppress(UsageError):  # of a suite that cannot be asked here
            if pattern in [case.name for case in catalog.cases(suite, setting)]:
                return UsageError(f"--only: {pattern} is a model of {suite}; use --suites={suite}")
    if said:
        return UsageError(f"--only: {'; '.join(said)}")
    names = {other: _names(config, other, catalog) for other in Mode}
    fits = {other for other in Mode if any(fnmatchcase(name, pattern) for name in names[other])} - {mode}
    if fits:
        others = " or ".join(f"--{other.value}" for other in Mode if other in fits)
        return UsageError(f"--only: {pattern} cannot be run with --{mode.value}; use {others}")
    where = f"model of {', '.join(config.suites)}"
    return unknown("--only", pattern, where, dict.fromkeys(names[mode]))


def _selected(
    suite: str, config: RunConfig, setting: Setting, named: tuple[str, ...], catalog: Catalog
) -> tuple[Case, ...]:
    """The selected cases in the suite's order, then those of its library. ``named``: by ``--only``."""
    selection, offered = config.selection, catalog.cases(suite, setting)

    def matches(name: str, patterns: Sequence[str]) -> bool:
        return any(re.search(pattern, name) for pattern in patterns)

    cases = [case for case in offered if not matches(case.name, selection.excludes)]
    if selection.only or selection.filters:
        cases = [case for case in cases if case.name in named or matches(case.name, selection.filters)]
    else:
        cases = [case for case in cases if ON_REQUEST not in case.tags]
    if selection.quick and not selection.only:
        tagged = [case for case in cases if QUICK in case.tags]
        if not tagged and len(cases) > QUICKLY and suite.endswith(".py"):
            left = f"{QUICKLY} of {len(cases)} models of {suite} ({setting.mode.value})"
            print(f"note: --quick: the first {left}, as none has the tag {QUICK!r}", file=sys.stderr)
        cases = tagged or cases[:QUICKLY]
    listed = {case.name for case in offered}
    more = [name for name in named if name not in listed and not matches(name, selection.excludes)]
    return (*cases, *(catalog.cases_of(suite, setting, more) if more else ()))


def _nothing_selected(config: RunConfig, mode: Mode, catalog: Catalog) -> str:
    selection, known = config.selection, _names(config, mode, catalog)
    if not known:
        return f"--{mode.value}: {', '.join(config.suites)} has no model for it"
    if selection.filters:
        word = re.sub(r"\W+", "", selection.filters[0]) or selection.filters[0]
        error = unknown("-k/--filter", word, "model matching", known)
        return str(error).replace("model matching called", "model matching")
    if selection.excludes:
        return "-x/--exclude: every model is left out; loosen the pattern"
    return f"--suites: {', '.join(config.suites)} has no model to run"
