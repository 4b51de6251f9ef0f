"""Writes what the program declares into the pages: ``python -m docs.pages``.

``FLAGS.md``, ``COMPILERS.md`` and ``metrics.csv`` are written whole. Of ``FORMAT.md`` and ``API.md`` the
lists are, each below its heading: fields of records, columns of data frames, arguments. The meaning of a
field is the comment beside or above it in ``harness/schema.py``. A field or a column without one shares the
next entry. Names of older records have no entry.

README quotes a committed run, as its console printed it; ``python -m docs.pages --run logs/RUN``
puts another run in its place.
"""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import gzip
import inspect
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import schema
from harness.backends import backend_names
from harness.codec import recorded_name
from harness.declared import GROUPS
from harness.loading.toml_file import read_toml
from harness.metrics import declared
from harness.settings import ROW
from runner.analysis.columns import Column, own_columns
from runner.analysis.derive import summarize
from runner.cli.parser import build_parser
from runner.cli.upstream import Theirs, answers
from runner.reports.console import print_answer, print_report
from runner.store.record_file import read_records
from torchduet import Result, compare
from torchduet.frames import COMPILATIONS, FIRST_CALLS, KEYS, SAMPLES

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ROOT / "harness" / "backends"
NOT_STORED = (schema.Setting, schema.Round)
SETTINGS = (schema.Protocol, schema.CompilerOptions, schema.Extras)
OLDER = "older records"
TYPES = {"str": "", "Mode": "", "int": "integer", "float": "number", "bool": "boolean"}
RUN = ROOT / "results" / "main-job-auto-cpu"  # that README quotes
QUOTED = "inductor"
WIDTH = 100
QUOTE = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, Callable[[], str]]:
    """What makes the text of each page that this script writes, by its path."""
    return {
        "docs/FLAGS.md": flags_page,
        "docs/FORMAT.md": lambda: _with_lists("docs/FORMAT.md", _records() | _frames()),
        "docs/API.md": lambda: _with_lists("docs/API.md", _api()),
        "docs/metrics.csv": _metrics,
        "docs/COMPILERS.md": lambda: COMPILERS + _list(_compilers()),
        "README.md": _first_page,
    }


def _with_lists(page: str, lists: Mapping[str, str]) -> str:
    """The page, with the first list of names below each of these headings replaced."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for heading, new in lists.items():
        section = re.compile(rf"(\n##+ {re.escape(heading)}\n(?:(?!##|- `).*\n)*)(?:- `.*\n)+")
        parts = section.split(text)
        if len(parts) != 3:
            raise ValueError(f"{page} needs one section {heading!r} with a list of names")
        before, head, after = parts
        text = before + head + new + after
    return text


def _first_page() -> str:
    """README, with the lines of the committed run in its block of text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if len(QUOTE.findall(text)) != 1:
        raise ValueError("README.md needs one block that begins with ```text")
    return QUOTE.sub(lambda _: quoted(), text)


def _list(entries: Iterable[tuple[str, str]]) -> str:
    """A line for each pair of names and their meaning."""
    return "".join(f"- {names}: {meaning}\n" for names, meaning in entries)


def _records() -> dict[str, str]:
    kinds = [kind for kind in vars(schema).values() if dataclasses.is_dataclass(kind)]
    return {
        kind.__name__: _fields(kind)
        for kind in kinds
        if isinstance(kind, type) and kind not in (*NOT_STORED, *SETTINGS)
    }


def _fields(kind: Any) -> str:
    meanings = _meanings(kind)
    entries, names = [], []
    by_flag: list[str] = []
    for field in dataclasses.fields(kind):
        meaning, name = meanings[field.name], recorded_name(field)
        if meaning and meaning == _flags(field):
            own_name = meaning == f"`--{name.replace('_', '-')}`"
            by_flag.append(f"`{name}`" if own_name else f"`{name}` ({meaning})")
            continue
        names.append(f"`{name}`")
        if meaning:
            kind_of = _type(str(field.type))
            typed = f"{', '.join(names)} ({kind_of})" if kind_of else ", ".join(names)
            entries.append((typed, _cell(meaning)))
            names = []
    entries = [entry for entry in entries if OLDER not in entry[1]]
    if names:
        raise ValueError(f"{kind.__name__} has fields without a meaning: {names}")
    if by_flag:
        entries.append((", ".join(by_flag), "the flag in brackets, else that of the same name"))
    return _list(entries)


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
        return f"[{_type(inner.partition(',')[0]) or 'text'}]"
    if many == "dict":
        return "object"
    plain, _, none = annotation.partition(" | ")
    name = TYPES.get(plain, plain)
    return f"{name or 'text'}?" if none else name


def _metrics() -> str:
    """A row for each metric: its name, unit, whether it is derived from others, and its meaning."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("metric", "unit", "derived", "meaning"))
    for one in sorted(declared().metrics, key=lambda one: (one.derive is not None, GROUPS.index(one.group))):
        derived = "yes" if one.derive is not None else ""
        rows.writerows((name, one.unit or "count", derived, one.meaning) for name in one.names)
    return file.getvalue()


def _frames() -> dict[str, str]:
    frames = {
        "comparisons": own_columns(),
        "samples": SAMPLES[len(KEYS) :],
        "first_calls": FIRST_CALLS[len(KEYS) :],
        "compilations": COMPILATIONS[len(KEYS) :],
    }
    metrics = declared().by_name  # metrics.csv has them
    return {
        name: _columns(tuple(column for column in columns if column.name not in metrics))
        for name, columns in frames.items()
    }


def _columns(columns: tuple[Column[Any], ...]) -> str:
    entries, names = [], []
    for column in columns:
        names.append(f"`{column.name}`")
        if column.meaning:
            unit = "" if column.unit == "text" else f" ({column.unit or 'count'})"
            entries.append((", ".join(names) + unit, column.meaning))
            names = []
    return _list(entry for entry in entries if OLDER not in entry[1])


def _api() -> dict[str, str]:
    """The arguments of ``compare``, what a result and a comparison have, and the settings by flag."""
    return {
        "compare": _list(_arguments()),
        "Result": _list(_attributes(Result)),
        "Settings": _list(_settings()),
    }


def _settings() -> Iterator[tuple[str, str]]:
    """Of each dataclass of settings the fields, with the flag of one where it has another name."""
    for kind in SETTINGS:
        names = []
        for field in dataclasses.fields(kind):
            flags = _flags(field)
            same = flags == f"`--{field.name.replace('_', '-')}`"
            names += [f"`{field.name}`" if same else f"`{field.name}` ({flags})"] if flags else []
        yield f"`{kind.__name__}`", ", ".join(names)


def _arguments() -> Iterator[tuple[str, str]]:
    """Each argument of ``compare`` with its default, and its paragraph of the docstring."""
    defaults = {
        name: "" if one.default in (one.empty, None) else f"={one.default!r}"
        for name, one in inspect.signature(compare).parameters.items()
    }
    for name, meaning in re.findall(r"^(\w+): (.*(?:\n    .*)*)", str(inspect.getdoc(compare)), re.MULTILINE):
        yield f"`{name}{defaults[name]}`", _code(meaning)


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Each method and property, by the first paragraph of its docstring."""
    for name, member in vars(kind).items():
        words = inspect.getdoc(member) if isinstance(member, property) or inspect.isfunction(member) else None
        if words and not name.startswith("_"):
            yield f"`{name}{'()' if inspect.isfunction(member) else ''}`", _code(words.partition("\n\n")[0])


def _code(text: str) -> str:
    """Words of a docstring as those of a page."""
    return re.sub(r"`docs/(\w+\.md)`", r"[\1](\1)", " ".join(text.replace("``", "`").split()))


COMPILERS = """\
# Compilers

`python -m docs.pages` writes this page from `harness/backends/`. In brackets are the only modes and devices
of a compiler, and what it needs beside torch 2.0 (packages of pip, most of them in `torchduet[compilers]`).
`--list-compilers` says which can be used here, and why others cannot.
[A compiler of your own](EXTEND.md#a-compiler-of-your-own-without-a-file-here) is a function.

"""


def _compilers() -> Iterator[tuple[str, str]]:
    """The names, with what their files and presets declare. Imports no compiler."""
    presets = read_toml(BACKENDS / "shared" / "presets.toml")
    extra = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]["compilers"]
    versions = {re.split("[<>=]", requirement)[0]: requirement for requirement in extra}
    versions["inductor"] = "what inductor needs"
    for name in backend_names():
        known = presets.get(name) or _declared(BACKENDS / f"{name}.py")
        needs = [versions.get(need, need) for need in known.get("needs", "").split(", ") if need]
        limits = (*known.get("modes", ()), *known.get("devices", ()))
        brackets = "; ".join(filter(None, (", ".join(limits), ", ".join(needs))))
        yield f"`{name}`{f' ({brackets})' if brackets else ''}", known["about"]


def _declared(path: Path) -> dict[str, Any]:
    """What a compiler's file has of a preset: the first line of its docstring, and its constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = re.findall(r"^(MODES|DEVICES|NEEDS) = (.+)$", ast.unparse(tree), re.MULTILINE)
    known = {name.lower(): ast.literal_eval(value) for name, value in constants}
    return {"about": str(ast.get_docstring(tree)).splitlines()[0], **known}


HEAD = """\
# Every flag

`python -m docs.pages` writes this page from the settings. Write `--flag VALUE` or `--flag=VALUE`; flags
cannot be abbreviated. `python suites/tiny_gpt.py ...` takes the same flags and measures its own suite.
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

Type the commands of PyTorch's `benchmarks/dynamo` as they are: `python suites/huggingface.py ...` for its
suite scripts, `python runner.py ...` for its runner. A flag with the same name does the same. Other flags
are translated, as `--speedup-ts` to `--compilers=torchscript`, or ignored because they need nothing here; a
note on standard error says so. {refused} flag names are refused, each with a reason and exit code 2. A
command that names a compiler and no mode measures inference. `--inductor` has no CUDA graphs here; upstream
switches them on (`--inductor-compile-mode=reduce-overhead`).
"""


def _upstream() -> str:
    """The flags of ``benchmarks/dynamo`` that become others here, for a reason."""
    known = [*answers()]
    replaced = [row for row in known if (row.choices or row.ours or row.special) and row.why]
    refused = {name for row in known if row.refused for name in row.names}
    rows = [(row.names, _answer(row)) for row in replaced]
    return f"{UPSTREAM.format(refused=len(refused))}\n{_list(_joined(rows))}"


def _joined(rows: list[tuple[tuple[str, ...], str]]) -> Iterator[tuple[str, str]]:
    """Names with the same meaning are one entry."""
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
            yield f"## {title[0].upper()}{title[1:]}\n\n{_list(rows)}"


def _names(action: argparse.Action) -> str:
    words = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 or words is None else f" {words}"
    several = " ..." if action.nargs == "+" else ""
    optional = f" [{value.strip()}]" if action.nargs == "?" else f"{value}{several}"
    *others, last = action.option_strings
    return _cell(", ".join([*(f"`{name}`" for name in others), f"`{last}{optional}`"]))


def _cell(text: str) -> str:
    for written, shown in (("%%", "%"), ("<", "&lt;"), ("*.", "\\*."), ("_*", "_\\*")):
        text = text.replace(written, shown)
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)


def quoted() -> str:
    """Of the run's table its head and the models with the largest and smallest speedup; its last lines."""
    summary = summarize(read_records(RUN / "records.jsonl").records)
    speedups = {c.record.job.case.name: c.speedup for c in summary.comparisons if c.compiler == QUOTED}
    known = {name: speedup for name, speedup in speedups.items() if speedup is not None}
    chosen = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    console = Console(file=(file := io.StringIO()), width=WIDTH)
    print_report(summary, console)
    print_answer(summary, console)
    printed = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join([*_quoted_lines(printed, chosen, len(speedups)), ""])


def _quoted_lines(lines: list[str], chosen: tuple[str, ...], models: int) -> Iterator[str]:
    head = next(number for number, line in enumerate(lines) if line.startswith("model "))
    yield from lines[head - 2 : head + 1]
    name = ""
    for line in lines[head + 2 : lines.index("", head)]:
        name = line.split()[0] if not line.startswith(" ") else name
        if name in chosen:
            yield line
    yield f"({models - len(chosen)} more models)"
    yield ""
    shown = False
    for line in lines[len(lines) - lines[::-1].index("", 1) :]:  # the answer: an entry for each compiler
        shown = shown if line.startswith(" ") else f", {QUOTED}: " in line
        if shown:
            yield line


def replace_run(run: Path) -> None:
    """Packs the records and the plan of this run in place of the committed ones."""
    for name in ("records.jsonl", "run.json"):
        with gzip.GzipFile(RUN / f"{name}.gz", "wb", compresslevel=9, mtime=0) as file:
            file.write((run / name).read_bytes())


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--run", type=Path, help="a finished run of the main job, to be quoted from now on")
    if run := words.parse_args().run:
        replace_run(run)
    for name, page in pages().items():
        (ROOT / name).write_text(page(), encoding="utf-8")
