"""The argparse parser of the table of settings and the actions. No other module sees argparse's Namespace."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from harness.settings import Flag, Given, Group
from runner.cli.actions import ACTIONS, Action
from runner.cli.formats import FORMAT
from runner.errors import UsageError, unknown
from runner.plan.compilers import COMPILE_MODE
from runner.plan.config import RunConfig, Where
from runner.plan.settings import rows
from runner.store.invocation import in_clone, program, version

EXAMPLES = Path(__file__).with_name("examples.txt")
THEIRS = "theirs"


class Parser(argparse.ArgumentParser):
    """Raises ``UsageError`` instead of printing the usage, as for any other bad input."""

    def error(self, message: str) -> NoReturn:
        plain = re.sub(r": ignored explicit argument (.*)$", r": takes no value, not \1", message)
        raise UsageError(plain.removeprefix("argument "))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """``UsageError`` for an unknown flag, with similar flags."""
        typed, left = self.parse_known_args(args, namespace)
        for name in (word.partition("=")[0] for word in left if word.startswith("--")):
            ours = [action for action in self._actions if action.help is not argparse.SUPPRESS]
            known = [known for action in ours for known in action.option_strings]
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            advice = f"did you mean {' or '.join(near)}?" if near else "see --help for the flags"
            raise UsageError(f"{name}: there is no such flag; {advice}")
        if left:
            raise UsageError(f"{left[0]!r} belongs to no flag; see --help for the flags")
        return typed


Others = tuple[tuple[str, bool], ...]


def given(arguments: Sequence[str], others: Others = ()) -> Given:
    """The typed values by flag. ``others``: (name, whether it has a value); theirs are under ``THEIRS``."""
    for word in arguments:
        if lone := re.fullmatch(r"(--[\w-]+|-\w)=?--", word):  # argparse would make an empty list of it
            raise UsageError(f"{lone[1]}: '--' is not a value; give a value, or leave the flag out")
    typed: dict[str, Any] = vars(build_parser(others).parse_args(list(arguments)))
    for flag in flags():
        texts = typed.get(flag.key) if flag.kind.read is str and flag.metavar else None
        if "" in ([texts] if isinstance(texts, str) else texts or ()) and not flag.listed:
            raise UsageError(f"{flag.shown}: the value is empty; give one, or leave the flag out")
    for key in dict.fromkeys(flag.key for flag in flags() if flag.part):
        for name, equals in (text.partition("=")[:2] for text in typed.get(key, ())):
            if not equals:
                raise UsageError(f"--{key}: {name!r} is not written as key=value, such as max_rounds=40")
            known = [flag.part for flag in flags() if flag.key == key]
            if name not in known:
                raise unknown(f"--{key}", name, "setting", known)
    return typed


class _Read(Mapping[str, Any]):
    """The typed values, and which of them were looked at."""

    def __init__(self, typed: Given) -> None:
        self._typed, self.keys_read = typed, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.keys_read.add(key)
        return self._typed[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._typed)

    def __len__(self) -> int:
        return len(self._typed)


def parsed(action: Action, typed: Given) -> Any:
    """The request of the action. ``UsageError`` for a flag that the action does not use."""
    read = _Read(typed)
    request = action.parse(read)
    call = action.FLAGS[0]
    unused = typed.keys() - read.keys_read - {call.key}
    for flag in flags():
        if flag.key in unused:
            with_what = f" with {call.long}" if call.key in typed else " here"
            raise UsageError(f"{flag.long} does nothing{with_what}; leave it out")
    return request


def _examples() -> str:
    """The examples, with the commands of this installation."""
    text = EXAMPLES.read_text(encoding="utf-8")
    if in_clone():
        return text
    text = re.sub(r"python suites/(\w+)\.py", r"python runner.py --suites=\1", text)
    text = text.replace("one model by the suite's script", "one model")
    return text.replace("python runner.py", " ".join(program()))


def build_parser(others: Others = ()) -> Parser:
    parser = Parser(
        prog="runner.py" if in_clone() else program()[-1],
        description="Measures eager and compiled PyTorch models in pairs: parity, speedup and its interval.",
        epilog=_examples(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    groups = {group: parser.add_argument_group(group.value) for group in Group}
    actions, number = groups[Group.ACTIONS], f"torchduet {version()}"
    actions.add_argument("-h", "--help", action="help", help="show this help and exit")
    actions.add_argument("--version", action="version", version=number, help="show the version and exit")
    seen = set[str]()
    for flag in flags():
        if flag.key not in seen:  # one flag may set several fields
            seen.add(flag.key)
            add_flag(groups[flag.group], flag)
    for name, valued in others:
        how: dict[str, Any] = {"action": "append_const"}
        if valued:
            how = {"action": "append", "nargs": "?", "type": partial(lambda *pair: pair, name)}
        parser.add_argument(name, dest=THEIRS, const=(name, ""), help=argparse.SUPPRESS, **how)
    return parser


def flags() -> Iterator[Flag]:
    """Every flag, in the order of ``--help`` within its group."""
    for action in ACTIONS:
        yield from action.FLAGS
    for kind in (RunConfig, Where):
        for _, _, row in rows(kind):
            yield from row.flags if row is not None else ()
    yield from (FORMAT, COMPILE_MODE)


def add_flag(group: argparse._ActionsContainer, flag: Flag) -> None:
    how: dict[str, Any] = {"action": "store_true"}
    if flag.metavar is not None:
        action = "append" if flag.many or flag.listed else _Once
        how = {"action": action, "metavar": flag.metavar, "nargs": flag.nargs, "const": flag.const}
    group.add_argument(*flag.names, dest=flag.key, help=flag.help, **how)


class _Once(argparse.Action):
    """Stores a value, and refuses another value of the same flag: only one of them could count."""

    def __call__(self, _: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest, values)
        if before != values:
            raise UsageError(f"{option_string}: given twice, as {before!r} and {values!r}; give it once")
        setattr(namespace, self.dest, values)
