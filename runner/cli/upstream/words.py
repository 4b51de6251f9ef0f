"""A command line of ``benchmarks/dynamo`` as one of ours: words in, words and notes out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType

from harness.settings import Flag, Group, choice
from runner.cli.upstream.table import COMPILERS, MODELS, TABLE, Theirs
from runner.errors import UsageError

_EXTRA = "--extra-args"
_FOLDER = "--output-dir"
_DEVICES = ("-d", "--device", "--devices")
NO_MODE = "no mode was given: --inference, as in benchmarks/dynamo; the others: --training, --generate"
_MODES = ("--training", "--inference", "--generate")
_NAMING_COMPILERS = ("--compilers", "--backend")


@dataclass(frozen=True, slots=True)
class Word:
    """A flag with its value. ``name`` is empty for a word that is neither theirs nor a plain flag of ours."""

    name: str
    value: str | None
    typed: tuple[str, ...]

    @staticmethod
    def of(text: str) -> Word:
        name, equals, value = text.partition("=")
        return Word(name, value if equals else None, (text,))

    def valued(self, value: str) -> Word:
        return Word.of(f"{self.name}={value}")


class Line:
    """A command line in words of ours, and the notes on what was changed."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.notes: list[str] = []

    def has(self, *names: str) -> bool:
        return any(word.name in names for word in self.words)

    def values(self, *names: str) -> list[str]:
        return [word.value for word in self.words if word.name in names and word.value]

    def put(self, *texts: str, instead_of: Collection[str] = ()) -> None:
        self.words = [word for word in self.words if word.name not in instead_of]
        self.words += [Word.of(text) for text in texts]

    def compilers(self) -> list[str]:
        """The compilers that were typed."""
        named = [name for value in self.values(*_NAMING_COMPILERS) for name in value.split(",")]
        return [*named, *(["inductor"] if self.has("--inductor") else [])]

    def rename_compilers(self, names: Mapping[str, str]) -> None:
        """Replaces compilers by others, wherever they are named."""
        for position, word in enumerate(self.words):
            if word.name == "--inductor" and "inductor" in names:
                self.words[position] = Word.of(f"--compilers={names['inductor']}")
            elif word.name in _NAMING_COMPILERS and word.value:
                renamed = [names.get(name, name) for name in word.value.split(",")]
                self.words[position] = word.valued(",".join(renamed))


def translated(arguments: Sequence[str], flags: Collection[Flag]) -> tuple[list[str], tuple[str, ...]]:
    """The words with the flags of ours, and the notes. ``UsageError`` for a flag that has no counterpart.

    ``flags``: the flags of this program; they keep their meaning, also if upstream's meaning differs.
    """
    ours = {name: one for one in flags for name in one.names}
    theirs = {name: row for row in TABLE for name in row.names if name not in ours}
    words = list(_split(_with_extra(arguments), ours, theirs))
    line = Line([word for word in words if word.name not in theirs])
    asked = [(theirs[word.name], word) for word in words if word.name in theirs]
    for row, word in sorted(asked, key=lambda one: bool(one[0].special)):  # these look at the others
        _apply(row, word, line)
    _rename_values(line)
    _visualize_folder(line)
    _add_mode(line, flags)
    return [text for word in line.words for text in word.typed], tuple(line.notes)


def _with_extra(arguments: Sequence[str]) -> Iterator[str]:
    """The words, with those of ``--extra-args`` in its place."""
    rest = iter(arguments)
    for text in rest:
        name, equals, value = text.partition("=")
        if name.replace("_", "-") != _EXTRA:
            yield text
            continue
        value = value if equals else next(rest, "")
        try:
            yield from shlex.split(value)
        except ValueError as error:
            raise UsageError(f"{_EXTRA}: {value!r} cannot be split into words ({error})") from None


def _split(
    arguments: Iterator[str], ours: Mapping[str, Flag], theirs: Mapping[str, Theirs]
) -> Iterator[Word]:
    """The flags with their values, as argparse pairs them. ``--some_flag`` is read as ``--some-flag``."""
    words = list(arguments)
    position = 0
    while position < len(words):
        text = words[position]
        position += 1
        name, equals, value = text.partition("=")
        if not name.startswith("--"):
            name, value = text[:2], text[2:].removeprefix("=")
            equals = "=" if value else ""
        elif name not in ours and name not in theirs:
            name = name[:2] + name[2:].replace("_", "-")
        own = ours.get(name)
        plain = own is not None and own.nargs is None and not isinstance(own.metavar, tuple)
        if not (plain or name in theirs):
            yield Word("", None, (text,))
            continue
        takes = own.metavar is not None if own is not None else bool(theirs[name].value)
        if equals and not takes:
            yield Word("", None, (text,))  # for argparse to refuse
            continue
        begin = position - 1
        if takes and not equals and position < len(words) and not words[position].startswith("-"):
            value, equals = words[position], "="
            position += 1
        typed = words[begin:position]
        if name.startswith("--"):
            typed[0] = name + text[len(name) :]  # with hyphens
        yield Word(name, value if equals else None, tuple(typed))


def _apply(row: Theirs, word: Word, line: Line) -> None:
    if row.refused:
        raise UsageError(f"{word.name} is not supported: {row.why}")
    if row.value and not word.value:
        raise UsageError(f"{word.name}: the value is missing; write {word.name} {row.value}")
    value = word.value or ""
    if row.special:
        SPECIAL[row.special](value, word.name, line)
        return
    ours = row.ours
    if row.choices:
        try:
            ours = row.choices[choice("value", row.choices).read(value)]
        except ValueError as error:
            raise UsageError(f"{word.name}: {error}") from None
        if ours is None:
            raise UsageError(f"{word.name}={value} is not supported: {row.why}")
    texts = [text.replace("{}", value) for text in ours or ()]
    line.put(*texts, instead_of=row.drops)
    line.notes.append(f"{word.name}: {_here(texts, row.why)}")


def _here(texts: Sequence[str], why: str) -> str:
    """``--explain here: the reason``; the reason alone, if nothing replaces the flag."""
    if not texts:
        return why
    return f"{' '.join(texts)} here" + (f": {why}" if why else "")


# -- flags that words alone cannot translate ------------------------------------------------------------


def _exclude_exact(value: str, name: str, line: Line) -> None:
    text = f"--exclude=^{re.escape(value)}$"
    line.put(text)
    line.notes.append(f"{name}: {text} here")


def _device_index(value: str, name: str, line: Line) -> None:
    kind = (line.values(*_DEVICES) or ["cuda"])[-1]
    text = f"--devices={kind}:{value}"
    line.put(text, instead_of=_DEVICES)
    line.notes.append(f"{name}: {text} here")


def _amp_dtype(value: str, name: str, line: Line) -> None:
    if not line.has("--amp"):
        raise UsageError(f"{name}: it belongs to --amp; add --amp, or leave it out")
    text = f"--dtypes=amp_{value}"
    line.put(text, instead_of=("--amp",))
    line.notes.append(f"{name}: {text} here")


def _output(value: str, name: str, line: Line) -> None:
    folders = line.values(_FOLDER)
    file = PurePath(value)
    text = f"{_FOLDER}={PurePath(folders[-1], file.stem) if folders else file.with_suffix('')}"
    line.put(text, instead_of=(_FOLDER,))
    line.notes.append(f"{name}: {text} here; the CSV files in it have the field's names")


def _disable_cudagraphs(value: str, name: str, line: Line) -> None:
    mode = "--inductor-compile-mode"
    if "max-autotune" in line.values(mode):
        text = f"{mode}=max-autotune-no-cudagraphs"
        line.put(text, instead_of=(mode,))
        line.notes.append(f"{name}: {text} here")
    elif line.has(mode):
        line.notes.append(f"{name}: {mode} decides on CUDA graphs")
    else:
        _choose_inductor("inductor_no_cudagraphs", name, line)


def _compiled_autograd(value: str, name: str, line: Line) -> None:
    _choose_inductor("inductor_compiled_autograd", name, line)


def _inductor_settings(value: str, name: str, line: Line) -> None:
    """There, inductor used CUDA graphs, and this flag gave eager inductor's other settings."""
    if "inductor" in line.compilers() and not line.has("--inductor-compile-mode"):
        _choose_inductor("inductor_reduce_overhead", name, line)
    else:
        line.notes.append(f"{name}: eager always runs under the settings of the candidates")


def _choose_inductor(kind: str, name: str, line: Line) -> None:
    """Measures this kind of inductor in place of inductor; alone, if no compiler was typed."""
    if not line.compilers():
        line.put(f"--compilers={kind}")
    elif "inductor" not in line.compilers():
        line.notes.append(f"{name}: it changes inductor, which is not among the compilers")
        return
    line.rename_compilers({"inductor": kind})
    line.notes.append(f"{name}: measured as {kind}")


SPECIAL: Mapping[str, Callable[[str, str, Line], None]] = MappingProxyType(
    {
        "exclude_exact": _exclude_exact,
        "device_index": _device_index,
        "amp_dtype": _amp_dtype,
        "output": _output,
        "disable_cudagraphs": _disable_cudagraphs,
        "compiled_autograd": _compiled_autograd,
        "inductor_settings": _inductor_settings,
    }
)


# -- values of flags that both have -----------------------------------------------------------------------


def _rename_values(line: Line) -> None:
    """Compilers and models under upstream's names."""
    if "eager" in line.values("--backend"):
        line.notes.append("--backend=eager: the A/A control; Dynamo with eager's kernels is dynamo_eager")
    for name in dict.fromkeys(line.compilers()):
        if name in COMPILERS:
            ours, why = COMPILERS[name]
            line.notes.append(f"{name}: measured as {ours}; {why}")
    line.rename_compilers({name: ours for name, (ours, _) in COMPILERS.items()})
    for position, word in enumerate(line.words):
        model = word.value if word.name == "--only" and word.value else ""
        if model in MODELS:
            line.words[position] = word.valued(MODELS[model])
            line.notes.append(f"{model}: {MODELS[model]} here")
        elif model.startswith("path:"):
            raise UsageError(
                f"--only: {model!r} names a class in a file; write --model=FILE.py:FUNCTION, with a "
                "function that returns (module, inputs)"
            )


def _visualize_folder(line: Line) -> None:
    """There, the folder of ``--visualize-logs`` is that of ``--output-dir``."""
    folders = line.values(_FOLDER)
    for word in line.words:
        if word.name in ("--visualize-logs", "--visualize_logs") and word.value is None and folders:
            line.words = [word.valued(folders[-1])]  # there, flags of the run may stand beside it
            line.notes.append(f"{word.name}: {word.name}={folders[-1]} here")
            return


def _add_mode(line: Line, flags: Collection[Flag]) -> None:
    """There, a command of a suite's script without a mode measured inference."""
    named = {group: [name for one in flags if one.group is group for name in one.names] for group in Group}
    compilers = [name for name in named[Group.COMPILERS] if name != "--skip-unavailable"]
    others = [name for name in named[Group.ACTIONS] if not name.startswith("--print")]
    if line.has(*compilers) and not line.has(*_MODES, *others):
        line.put("--inference")
        line.notes.append(NO_MODE)
