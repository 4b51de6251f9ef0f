"""Graph breaks, and functions that Dynamo leaves to eager."""

from __future__ import annotations

from runner.runs.why.looked import Looked

NAME = "graph breaks"
SENTENCE = "Graph breaks divide the model; the code between the graphs runs in eager."


def signature(looked: Looked) -> str:
    breaks, left = looked.number("graph_breaks"), looked.number("eager_fallbacks")
    return f"{breaks:g} graph breaks, {left:g} functions left to eager" if breaks or left else ""
