"""Builds the wheel, which puts one package into site-packages: ``torchduet``. Settings are in pyproject.toml.

In a checkout, ``runner``, ``harness`` and ``suites`` are packages of their own. A user may have packages of
these names, too. So the wheel has them inside ``torchduet``, and their imports name them there:
``from harness.schema import Case`` is ``from torchduet.harness.schema import Case`` in the wheel.
An editable installation is the checkout itself, unchanged.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

OUTER = "torchduet"
INNER = ("harness", "runner", "suites")
_QUOTE = re.compile(rb"[A-Za-z]*(\"\"\"|'''|\"|')")


class Nested(build_py):
    """Copies the packages as always, then moves those of ``INNER`` into ``OUTER``."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        build = Path(self.build_lib)
        shutil.rmtree(build, ignore_errors=True)  # what an earlier build left would be in the wheel
        super().run()
        nest(build)


class OneName(egg_info):
    """Says that the distribution has one top-level package: ``importlib.metadata`` reads it there."""

    def run(self) -> None:
        super().run()
        (Path(self.egg_info) / "top_level.txt").write_text(f"{OUTER}\n", encoding="utf-8")


def nest(folder: Path) -> None:
    """Moves the packages of this folder into ``OUTER`` and changes their names in every file."""
    modules = {_name(path.relative_to(folder)) for name in INNER for path in (folder / name).rglob("*.py")}
    modules |= set(INNER)
    for name in INNER:
        (folder / name).rename(folder / OUTER / name)
    for path in (folder / OUTER).rglob("*.py"):
        source = path.read_bytes()
        path.write_bytes(renamed(source, modules))


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def renamed(source: bytes, modules: set[str]) -> bytes:
    """The source with ``OUTER`` before the names of ``modules``: in imports, and in strings that name one.

    A string names a module if it is one (``"harness.worker"``), with a function (``"harness.x:make"``), or
    is the beginning of one (``f"suites.{name}"``). A word without a dot names no module.
    """
    lines = source.splitlines(keepends=True)
    places = sorted(set(_places(ast.parse(source), lines, modules)), reverse=True)
    for line, column in places:
        text = lines[line]
        lines[line] = text[:column] + OUTER.encode() + b"." + text[column:]
    return b"".join(lines)


def _places(tree: ast.AST, lines: list[bytes], modules: set[str]) -> Iterator[tuple[int, int]]:
    """Line and column, in bytes and from 0, of every name that gets ``OUTER``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _ours(node.module):
            yield node.lineno - 1, node.col_offset + len(b"from ")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if _ours(name.name):
                    yield name.lineno - 1, name.col_offset
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
            text = first.value if isinstance(first, ast.Constant) else None
            if isinstance(text, str) and _names_module(text, modules):
                quote = _QUOTE.match(lines[node.lineno - 1], node.col_offset)
                if quote is not None:  # a part of an f-string has none, or that of the whole
                    yield node.lineno - 1, quote.end()


def _ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in INNER


def _names_module(text: str, modules: set[str]) -> bool:
    return "." in text and text.partition(":")[0].removesuffix(".") in modules


if __name__ == "__main__":
    setup(cmdclass={"build_py": Nested, "egg_info": OneName})
