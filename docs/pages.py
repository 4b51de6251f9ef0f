"""Writes ``docs/FLAGS.md``, and the tables of ``FORMAT.md`` and ``DATAFRAMES.md``: ``python -m docs.pages``.

A table stands below the heading of its class or data frame. The meaning of a field is the comment beside or
above it in ``harness/schema.py``; before it stands the flag that sets the field. A field or a column without
one shares the next row. Fields of which a flag says everything share the last row. Names of older records
have no row.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import schema
from harness.codec import recorded_name
from harness.declared import GROUPS
from harness.metrics import declared
from harness.settings import ROW
from runner.analysis.columns import Column, own_columns
from runner.cli.parser import build_parser
from runner.cli.upstream import Theirs, answers
from torchduet.frames import COMPILATIONS, FIRST_CALLS, KEYS, SAMPLES

DOCS = Path(__file__).resolve().parent
NOT_STORED = (schema.Setting, schema.Round)
OLDER = "older records"
TYPES = {"str": "text", "Mode": "text", "int": "integer", "float": "number", "bool": "boolean"}


def written() -> dict[str, str]:
    """The text of each page that this script writes."""
    return {
        "FLAGS.md": flags_page(),
        "FORMAT.md": _with_tables("FORMAT.md", _records()),
        "DATAFRAMES.md": _with_tables("DATAFRAMES.md", _frames()),
    }


def _with_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page, with the first table below each of these headings replaced."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for heading, table in tables.items():
        section = re.compile(rf"(\n## {heading}\n(?:(?!##|\|).*\n)*)(?:\|.*\n)+")
        parts = section.split(text)
        if len(parts) != 3:
            raise ValueError(f"docs/{page} needs one section {heading!r} with a table")
        before, head, after = parts
        text = before + head + table + after
    return text


def _table(*rows: tuple[str, ...]) -> str:
    head, *others = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([head, "|---" * len(rows[0]), "|\n", *others])


def _records() -> dict[str, str]:
    kinds = [kind for kind in vars(schema).values() if dataclasses.is_dataclass(kind)]
    tables = {
        kind.__name__: _fields(kind) for kind in kinds if isinstance(kind, type) and kind not in NOT_STORED
    }
    return {**tables, "Metrics": _metrics(derived=False), "Derived metrics": _metrics(derived=True)}


def _fields(kind: Any) -> str:
    meanings = _meanings(kind)
    rows, names = [("field", "meaning")], []
    by_flag: list[str] = []
    for field in dataclasses.fields(kind):
        meaning, name = meanings[field.name], recorded_name(field)
        if meaning and meaning == _flags(field):
            own_name = meaning == f"`--{name.replace('_', '-')}`"
            by_flag.append(f"`{name}`" if own_name else f"`{name}` ({meaning})")
            continue
        names.append(f"`{name}`")
        if meaning:
            rows.append((f"{', '.join(names)}: {_type(str(field.type))}", _cell(meaning)))
            names = []
    rows = [row for row in rows if OLDER not in row[1]]
    if names:
        raise ValueError(f"{kind.__name__} has fields without a meaning: {names}")
    if by_flag:
        rows.append((", ".join(by_flag), "see the flag in brackets, else that of the same name"))
    return _table(*rows)


def _meanings(kind: Any) -> dict[str, str]:
    """By field: its flags, and the comment above and beside it."""
    meanings = {field.name: _flags(field) for field in dataclasses.fields(kind)}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        code, _, comment = line.partition("# ")
        name = re.match(r"    (\w+): ", code)
        if name and name[1] in meanings and (above or comment):
            words = " ".join([*above, comment]).strip()
            meanings[name[1]] = ": ".join(filter(None, (meanings[name[1]], words)))
        above = [*above, comment] if comment and not code.strip() else []
    return meanings


def _flags(field: dataclasses.Field[Any]) -> str:
    flags = field.metadata[ROW].flags if ROW in field.metadata else ()
    return ", ".join(dict.fromkeys(f"`{flag.long}`" for flag in flags))


def _type(annotation: str) -> str:
    many, _, inner = annotation.partition("[")
    if many == "tuple":
        return f"[{_type(inner.partition(',')[0])}]"
    if many == "dict":
        return "object"
    plain, _, none = annotation.partition(" | ")
    return TYPES.get(plain, plain) + (" or null" if none else "")


def _metrics(*, derived: bool) -> str:
    metrics = [one for one in declared().metrics if (one.derive is not None) == derived]
    metrics = [one for one in metrics if OLDER not in one.meaning]
    metrics.sort(key=lambda one: GROUPS.index(one.group))
    return _table(("metric", "meaning"), *_joined([(tuple(one.names), one.meaning) for one in metrics]))


def _frames() -> dict[str, str]:
    frames = {
        "comparisons": own_columns(),
        "samples": SAMPLES[len(KEYS) :],
        "first_calls": FIRST_CALLS[len(KEYS) :],
        "compilations": COMPILATIONS[len(KEYS) :],
    }
    metrics = declared().by_name  # FORMAT.md has them
    return {
        name: _columns(tuple(column for column in columns if column.name not in metrics))
        for name, columns in frames.items()
    }


def _columns(columns: tuple[Column[Any], ...]) -> str:
    rows, names = [("column", "unit and meaning")], []
    for column in columns:
        names.append(f"`{column.name}`")
        if column.meaning:
            rows.append(
                (", ".join(names), f"{column.unit or 'count'}: {column.meaning}".removeprefix("text: "))
            )
            names = []
    return _table(*(row for row in rows if OLDER not in row[1]))


HEAD = """\
# Every flag

`python -m docs.pages` writes this page from the table of settings; a test compares them.
A value is given as `--flag VALUE` or `--flag=VALUE`. Flags cannot be abbreviated. The script of a suite
(`python suites/tiny_gpt.py ...`) takes the same flags and measures its own suite.
"""


def flags_page() -> str:
    parser = build_parser()
    parts = [HEAD, *_groups(parser)]
    codes = str(parser.epilog).partition("\n\nexit code:")[2]
    parts.append(f"## Exit code\n\n{codes.strip().capitalize()}.\n")
    parts.append(_upstream())
    return "\n".join(parts)


UPSTREAM = """\
## Coming from benchmarks/dynamo

Most commands of PyTorch's `benchmarks/dynamo` can be typed as they are: `python suites/huggingface.py ...`
for its suite scripts, `python runner.py ...` for its runner. Flags with the same name are in the tables
above. Other flags, compilers and models are translated (`--speedup-ts` to `--compilers=torchscript`; below is
what needs a word), or accepted because nothing needs to be typed here; a note on standard error says so. The
rest ends with a sentence and exit code 2. `--some_flag` is read as `--some-flag`. A command that names a
compiler and no mode measures inference.

`--inductor` is `torch.compile`'s default mode, without CUDA graphs; upstream's benchmark switches CUDA
graphs on. `--inductor-compile-mode=reduce-overhead` does so here.
"""


def _upstream() -> str:
    """The flags of ``benchmarks/dynamo`` that become others here, for a reason."""
    replaced = [row for row in answers() if (row.choices or row.ours or row.special) and row.why]
    rows = [(row.names, _answer(row)) for row in replaced]
    return f"{UPSTREAM}\n{_table(('flag', 'answer'), *_joined(rows))}"


def _joined(rows: list[tuple[tuple[str, ...], str]]) -> Iterator[tuple[str, str]]:
    """Names with the same meaning are one row."""
    for answer in dict.fromkeys(answer for _, answer in rows):
        yield ", ".join(f"`{name}`" for names, own in rows if own == answer for name in names), answer


def _answer(row: Theirs) -> str:
    words = dict.fromkeys(ours for ours in (*row.choices.values(), row.ours) if ours)
    code = ", ".join(f"`{word.replace('{re}', '{}').replace('{}', row.value)}`" for word in words)
    return ": ".join(part for part in (code, _cell(row.why)) if part)


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    # argparse has no public access to its groups
    for group in parser._action_groups:  # noqa: SLF001
        actions = group._group_actions  # noqa: SLF001
        if actions:
            texts = [(_names(action), _cell(str(action.help))) for action in actions]
            helps = dict.fromkeys(text for _, text in texts)
            rows = [(", ".join(name for name, own in texts if own == text), text) for text in helps]
            title = str(group.title)
            yield f"## {title[0].upper()}{title[1:]}\n\n{_table(('flag', 'what it does'), *rows)}"


def _names(action: argparse.Action) -> str:
    words = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 or words is None else f" {words}"
    several = " ..." if action.nargs == "+" else ""
    optional = f" [{value.strip()}]" if action.nargs == "?" else f"{value}{several}"
    *others, last = action.option_strings
    return _cell(", ".join([*(f"`{name}`" for name in others), f"`{last}{optional}`"]))


def _cell(text: str) -> str:
    for written, shown in (("%%", "%"), ("|", "\\|"), ("<", "&lt;"), ("*.", "\\*."), ("_*", "_\\*")):
        text = text.replace(written, shown)
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)


if __name__ == "__main__":
    for name, text in written().items():
        (DOCS / name).write_text(text, encoding="utf-8")
