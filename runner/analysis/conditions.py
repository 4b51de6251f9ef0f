"""Conditions in tables, as ``passed and memory_ratio < 0.9``: a few expressions of Python, without calls."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

SIGNS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {ast.Lt: operator.lt, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq}
    | {ast.NotEq: operator.ne, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b}
)


@cache
def parsed(condition: str) -> ast.expr:
    return ast.parse(condition, mode="eval").body


def value_of(node: ast.expr, names: Callable[[str], Any]) -> Any:  # noqa: PLR0911 - one per expression
    """The value, with those that ``names`` gives. None is a missing value: it makes a comparison false."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names(name)
        case ast.Attribute(of, name):
            return None if (whole := value_of(of, names)) is None else getattr(whole, name)
        case ast.Subscript(of, ast.Constant(place)):
            return value_of(of, names)[place]
        case ast.Tuple(parts):
            return [value_of(part, names) for part in parts]
        case ast.UnaryOp(ast.Not(), part):
            return not value_of(part, names)
        case ast.BoolOp(sign, parts):
            return (all if isinstance(sign, ast.And) else any)(value_of(part, names) for part in parts)
        case ast.Compare(left, [sign], [right]) if type(sign) in SIGNS:
            sides = value_of(left, names), value_of(right, names)
            return None not in sides and SIGNS[type(sign)](*sides)
    raise ValueError(f"a condition cannot have {ast.unparse(node)!r}")
