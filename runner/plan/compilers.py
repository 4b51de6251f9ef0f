"""The flags that name compilers, and whether these compilers can be used on this machine."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from harness.backends import backend_names
from harness.backends.settings.candidates import compiler_of, named, parts_of
from harness.devices import type_of
from harness.loading.own_compiler import labels_of
from harness.loading.own_model import suite_of
from harness.schema import Job
from harness.settings import Group, Kind, Spelled, choice, flag, is_own_model, key_value, no_such, placed
from runner.errors import UsageError
from runner.plan.settings import value_of

Jobs = tuple[Job, ...]
DEFAULT_COMPILERS = ("aot_eager", "inductor", "torchscript")
ON_A_DEVICE, WITH_GRAPHS = "inductor", "inductor_reduce_overhead"  # the second on devices with CUDA graphs
ALWAYS_HERE = (*DEFAULT_COMPILERS, "eager")  # in every version of torch, for every mode and device
COMPILE_MODES = {
    "default": "inductor",
    "reduce-overhead": "inductor_reduce_overhead",
    "max-autotune": "inductor_max_autotune",
    "max-autotune-no-cudagraphs": "inductor_max_autotune_no_cudagraphs",
}


def autotunes(candidates: Iterable[str], inductor_config: Iterable[str]) -> bool:
    """Whether a compiler chooses kernels by measuring them, which no other job may disturb."""
    return any("max_autotune" in text for text in (*candidates, *inductor_config))


def listable(source: str) -> str:
    """``file.py`` or ``file.py:function`` with the file's absolute path, which must have no comma."""
    path = placed(source)
    if "," in (file := suite_of(path)):
        raise ValueError(f"the path {file!r} has a comma, which separates names; move the file")
    return path


def _placed(source: str) -> str:
    return listable(source) if is_own_model(source) else source


def _known(text: str) -> str:
    """A candidate's name in one form: without spaces in its brackets."""
    compiler, settings = parts_of(text)
    if compiler not in backend_names() and not is_own_model(text):
        sentence = no_such(compiler, "compiler", backend_names())
        if "did you mean" not in sentence:
            sentence = (
                f"there is no compiler called {compiler!r}; see --list-compilers, write a function of your "
                "own as file.py:function, or use --backend for a name that is registered with torch.compile"
            )
        raise ValueError(sentence)
    for key, count in Counter(part.partition("=")[0] for part in settings).items():
        if count > 1:
            raise ValueError(f"{text!r} has {key} more than once")
    return _placed(named(compiler, map(key_value, settings)))


def spelled_compilers(names: Sequence[str]) -> Spelled:
    """``--compilers``; ``--backend`` if a name is neither a file in ``harness/backends`` nor a function."""
    registered = any(compiler_of(name) not in backend_names() and not is_own_model(name) for name in names)
    return [(COMPILERS[1 if registered else 0], ",".join(names))]


COMPILE_MODE = flag(
    "--inductor-compile-mode=MODE",
    group=Group.OPTIONS,
    kind=choice("mode", COMPILE_MODES),
    help="the mode of inductor: default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs",
)
_compiler = partial(flag, group=Group.COMPILERS)
COMPILERS = (
    _compiler(
        "--compilers=NAME",
        listed=True,
        kind=Kind(_known),
        help="repeated or comma-separated (default: aot_eager,inductor,torchscript, on a GPU inductor,"
        "inductor_reduce_overhead); eager: A/A control; "
        "file.py:function or package.module:function: a compiler of your own; inductor[KEY=VALUE,...]: a "
        "compiler with settings of its own: docs/COMPARE.md",
    ),
    _compiler("--backend=NAME", listed=True, kind=Kind(_placed), help="the same as --compilers=NAME"),
    _compiler("--inductor", means="inductor", help="the same as --compilers=inductor"),
)
"""``--backend`` takes any name, because more compilers can be registered with torch. Both take functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What a worker's interpreter reports about one compiler."""

    what: str
    why_not: str | None
    modes: tuple[str, ...]  # () for all

    def refusal(self, name: str, mode: str) -> str | None:
        """A sentence why this compiler cannot compile a step of this mode; None if it can."""
        if self.why_not is not None:
            return f"{name} cannot be used here: {self.why_not}"
        if self.modes and mode not in self.modes:
            return f"{name} compiles {' and '.join(self.modes)} only"
        return None


# ask(device type, names): a worker's interpreter reports about these compilers (no names: all)
Ask = Callable[[str, Sequence[str]], Mapping[str, Usable]]


def named_compilers(chosen: Sequence[str], name_of_flag: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The candidates in this order, and the user's own functions by their labels, which name them."""
    places = {name: value_of(name_of_flag, Kind(_placed), name) for name in chosen if is_own_model(name)}
    others = (*backend_names(), *(name for name in chosen if name not in places))
    labels = labels_of(tuple(places.values()), taken=others)
    names = tuple(dict.fromkeys(labels[places[name]] if name in places else name for name in chosen))
    return names, {label: source for source, label in labels.items()}


LEAVE_OUT = "leave it out, or add --skip-unavailable"


def with_availability(jobs: Jobs, ask: Ask, *, skip: bool, instead: str = LEAVE_OUT) -> Jobs:
    """The jobs, with the reason for each candidate that cannot be used here in ``unavailable``.

    Raises ``UsageError`` for the first such candidate, unless ``skip``. ``instead``: the advice then. Starts
    an interpreter only if a chosen compiler may be missing.
    """
    ask = cache(ask)
    checked = []
    for job in jobs:
        doubtful = tuple(name for name in job.candidates if name not in ALWAYS_HERE)
        refused = {}
        for name in doubtful:
            usable = ask(type_of(job.device), doubtful)[name]
            named_here = compiler_of(name) in backend_names()
            if (not named_here or name != compiler_of(name)) and usable.why_not is not None and not skip:
                which = "compilers" if named_here or name in job.own_compilers else "backend"
                raise UsageError(f"--{which}: {usable.why_not}")
            if (why := usable.refusal(name, job.case.mode.value)) is not None:
                if not skip:
                    raise UsageError(f"--compilers: {why}; {instead}")
                refused[name] = why
        checked.append(dataclasses.replace(job, unavailable=refused) if refused else job)
    return tuple(checked)
