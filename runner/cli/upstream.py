"""The command lines of PyTorch's ``benchmarks/dynamo``, understood as typed.

``upstream.toml`` has an answer for each of its flags that is not a flag of ours: other words, nothing, or a
sentence. ``--some_flag`` is read as ``--some-flag``. Flags of ours keep their meaning.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from harness.loading.toml_file import read_toml
from harness.settings import Given, Group, choice
from runner.cli.parser import THEIRS, Others, flags, given
from runner.errors import UsageError
from runner.plan.settings import value_of

ANSWERS = Path(__file__).with_suffix(".toml")
EXTRA = "--extra-args"
VISUALIZE = "--visualize-logs"
COMPILE_MODE = "inductor_compile_mode"
MODES = ("training", "inference", "generate")
REFUSED = ("refused", "dropped")
NAMING_COMPILERS = ("compilers", "backend")
NO_MODE = "no mode was given: --inference, as in benchmarks/dynamo; the others: --training, --generate"
PATH_MODEL = (
    "names a class in a file; write --model=FILE.py:FUNCTION, with a function that returns (module, inputs)"
)
Typed = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """One flag. ``ours``: the words that replace it; None: refused. ``choices``: the words by its value."""

    names: tuple[str, ...]
    value: str  # metavar; "": a switch
    why: str
    ours: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    special: bool = False  # a function of this module replaces it

    @property
    def refused(self) -> bool:
        return self.ours is None and not self.choices

    def words(self, name: str, value: str) -> list[str]:
        """The words of ours. ``UsageError`` for a value that is not one of the choices."""
        key = value_of(name, choice("value", self.choices), value) if self.choices else ""
        ours = self.choices.get(key, self.ours or "")
        return [word.replace("{re}", re.escape(value)).replace("{}", value) for word in ours.split()]


def answers() -> tuple[Theirs, ...]:
    """Every flag of ``upstream.toml``."""
    tables, rows = read_toml(ANSWERS), list[tuple[str, dict[str, Any]]]()
    rows += [(flag, {"why": why, "ours": ""}) for flag, why in tables["accepted"].items()]
    rows += [(flag, {"why": why, "ours": ours}) for flag, (ours, why) in tables["translated"].items()]
    rows += [(flag, {"why": why, "ours": "", "special": True}) for flag, why in tables["special"].items()]
    rows += [(flag, {"why": row.pop("why"), "choices": row}) for flag, row in tables["choices"].items()]
    rows += [(flag, {"why": why}) for kind in REFUSED for flag, why in tables[kind].items()]
    typed = ((*flag.partition("=")[::2], row) for flag, row in rows)
    return tuple(Theirs(names=tuple(names.split()), value=value, **row) for names, value, row in typed)


def renamed() -> tuple[Mapping[str, tuple[str, str]], Mapping[str, str]]:
    """Names of compilers: ours, and why; names of models: ours."""
    tables = read_toml(ANSWERS)
    compilers = {name: row for names, row in tables["compilers"].items() for name in names.split()}
    return compilers, tables["models"]


def understood(arguments: Sequence[str]) -> tuple[Given, tuple[str, ...]]:
    """The typed values by flag of ours, and notes on what was changed. ``UsageError`` for bad input."""
    words = [*_plain(arguments)]
    ours = {name for flag in flags() for name in flag.names}
    names = [word.partition("=")[0] for word in words if word.startswith("-")]
    rows = {name: row for row in answers() for name in row.names} if {*names} - ours else {}
    for name in names:
        if name in rows and rows[name].refused:
            raise UsageError(f"{name} is not supported: {rows[name].why}")
    others = tuple((name, bool(row.value)) for name, row in rows.items())
    typed: Typed = dict(given(_folder_of_visualize(words, others), others))
    theirs = [(rows[name], name, value) for name, value in typed.pop(THEIRS, ())]
    # special ones look at the others
    notes = [_apply(*use, typed) for use in sorted(theirs, key=lambda use: use[0].special)]
    notes += _rename_values(typed)
    acts = {flag.key for flag in flags() if flag.group is Group.ACTIONS and not flag.key.startswith("print")}
    if _compilers(typed) and not typed.keys() & {*MODES, *acts}:
        typed["inference"] = True  # as there, in a suite's script
        notes.append(NO_MODE)
    return typed, tuple(notes)


def _plain(arguments: Iterable[str]) -> Iterator[str]:
    """The words with hyphens in the flags, and with those of ``--extra-args`` in its place."""
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name != EXTRA:
            yield f"{name}{equals}{value}"
            continue
        value = value if equals else next(rest, "")
        try:
            yield from _plain(shlex.split(value))
        except ValueError as error:
            raise UsageError(f"{EXTRA}: {value!r} cannot be split into words ({error})") from None


def _folder_of_visualize(words: list[str], others: Others) -> list[str]:
    """There, the folder of ``--visualize-logs`` is that of ``--output-dir``, beside flags of the run."""
    place = words.index(VISUALIZE) if VISUALIZE in words else len(words)
    if not all(word.startswith("-") for word in words[place : place + 2]) or place == len(words):
        return words
    typed = given(words[:place] + words[place + 1 :], others)
    formats = (f"--format={text}" for text in typed.get("format", ()))
    return [VISUALIZE, typed["output_dir"], *formats] if "output_dir" in typed else words


def _apply(row: Theirs, name: str, value: str, typed: Typed) -> str:
    """Replaces a flag of theirs in ``typed``. Returns the note."""
    if row.value and not value:
        raise UsageError(f"{name}: the value is missing; write {name} {row.value}")
    if row.special:
        return f"{name}: {SPECIAL[name](value, typed)}"
    words = row.words(name, value)
    for key, more in given(words).items():
        typed[key] = [*typed.get(key, ()), *more] if isinstance(more, list) else more
    if "--generate" in words:
        typed.pop("inference", None)
    here = f"{' '.join(words)} here" if words else ""
    return f"{name}: {': '.join(filter(None, (here, row.why)))}"


# -- flags that words alone cannot replace -------------------------------------------------------------


def _device_index(value: str, typed: Typed) -> str:
    kind = typed.get("devices", ["cuda"])[-1]
    typed["devices"] = [f"{kind}:{value}"]
    return f"--devices={kind}:{value} here"


def _amp_dtype(value: str, typed: Typed) -> str:
    if not typed.pop("amp", False):
        raise UsageError("--amp-dtype: it belongs to --amp; add --amp, or leave it out")
    typed.setdefault("dtypes", []).append(f"amp_{value}")
    return f"--dtypes=amp_{value} here"


def _output(value: str, typed: Typed) -> str:
    folder, file = typed.get("output_dir"), PurePath(value)
    if not file.name:
        raise UsageError(f"--output: {value!r} names no file; write --output-dir={value}")
    typed["output_dir"] = str(PurePath(folder, file.stem) if folder else file.with_suffix(""))
    testing = "accuracy" if typed.get("accuracy") else "performance"
    return f"--output-dir={(place := typed['output_dir'])} here; the table is {place}/*_{testing}.csv"


def _disable_cudagraphs(value: str, typed: Typed) -> str:
    if COMPILE_MODE not in typed:
        return _inductor_as("inductor_no_cudagraphs", value, typed)
    if typed[COMPILE_MODE] != "max-autotune":
        return "--inductor-compile-mode decides on CUDA graphs"
    typed[COMPILE_MODE] = "max-autotune-no-cudagraphs"
    return "--inductor-compile-mode=max-autotune-no-cudagraphs here"


def _inductor_settings(value: str, typed: Typed) -> str:
    """There, inductor used CUDA graphs, and this flag gave eager inductor's other settings."""
    if "inductor" in _compilers(typed) and COMPILE_MODE not in typed:
        return _inductor_as("inductor_reduce_overhead", value, typed)
    return "eager always runs under the settings of the candidates"


def _inductor_as(kind: str, _: str, typed: Typed) -> str:
    """Measures this kind of inductor in place of inductor; alone, if no compiler was typed."""
    names = _compilers(typed)
    if not names:
        typed["compilers"] = [kind]
    elif "inductor" not in names:
        return "it changes inductor, which is not among the compilers"
    _rename_compilers(typed, {"inductor": kind})
    return f"measured as {kind}"


SPECIAL: Mapping[str, Callable[[str, Typed], str]] = {
    "--device-index": _device_index,
    "--amp-dtype": _amp_dtype,
    "--output": _output,
    "--disable-cudagraphs": _disable_cudagraphs,
    "--compiled-autograd": partial(_inductor_as, "inductor_compiled_autograd"),
    "--inductor-settings": _inductor_settings,
}


# -- values of flags that both have --------------------------------------------------------------------


def _compilers(typed: Typed) -> list[str]:
    """The compilers that were typed."""
    named = [name for key in NAMING_COMPILERS for text in typed.get(key, ()) for name in text.split(",")]
    return [*named, *(["inductor"] if "inductor" in typed else [])]


def _rename_compilers(typed: Typed, names: Mapping[str, str]) -> None:
    for key in NAMING_COMPILERS:
        if key in typed:
            typed[key] = [",".join(names.get(name, name) for name in text.split(",")) for text in typed[key]]
    if "inductor" in names and typed.pop("inductor", False):
        typed.setdefault("compilers", []).append(names["inductor"])


def _rename_values(typed: Typed) -> Iterator[str]:
    """Replaces upstream's names of compilers and models. Gives the notes."""
    if "eager" in typed.get("backend", ()):
        yield "--backend=eager: the A/A control; Dynamo with eager's kernels is dynamo_eager"
    if not (_compilers(typed) or "only" in typed):
        return
    compilers, models = renamed()
    for name in dict.fromkeys(_compilers(typed)):
        if name in compilers:
            yield f"{name}: measured as {compilers[name][0]}; {compilers[name][1]}"
    _rename_compilers(typed, {name: ours for name, (ours, _) in compilers.items()})
    for model in typed.get("only", ()):
        if model.startswith("path:"):
            raise UsageError(f"--only: {model!r} {PATH_MODEL}")
        if model in models:
            yield f"{model}: {models[model]} here"
    if "only" in typed:
        typed["only"] = [models.get(model, model) for model in typed["only"]]
