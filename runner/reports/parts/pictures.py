"""Figures as bytes, without dates and program versions: the same figure gives the same bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
COMPRESSION = 3  # of 9; files are a tenth larger than with the default 6, in a third of the time
FONT_SIZE = 8.0
NAMELESS = ("Date", "Creator", "Format", "Type")  # metadata removed from an SVG
SALT = "torchduet"  # makes the ids inside an SVG reproducible


@contextmanager
def plain_style() -> Iterator[None]:
    """Matplotlib's default style: the user's matplotlibrc must not change the figure."""
    import matplotlib as mpl

    with (
        mpl.rc_context(mpl.rcParamsDefault),
        mpl.rc_context({"font.size": FONT_SIZE, "svg.hashsalt": SALT, "svg.fonttype": "none"}),
    ):
        yield


def pictures(name: str, figure: Figure) -> dict[str, bytes]:
    """The figure as ``name.png`` and ``name.svg``; ``name`` is the PNG's file name."""
    first = png(figure)
    figure.set_layout_engine("none")  # the layout is done; computing it again is slow
    return {name: first, f"{name.removesuffix('.png')}.svg": svg(figure)}


Panel = TypeVar("Panel")


def by_name(
    panels: Iterable[tuple[str, Panel]],
    draw: Callable[[Sequence[Panel]], Figure],
    save: Callable[[str, Figure], dict[str, bytes]] = pictures,
) -> dict[str, bytes]:
    """One figure for each file name, drawn from all panels with this name."""
    together: dict[str, list[Panel]] = {}
    for name, panel in panels:
        together.setdefault(name, []).append(panel)
    files: dict[str, bytes] = {}
    for name, members in together.items():
        files.update(save(name, draw(members)))
    return files


def png(figure: Figure) -> bytes:
    compression = {"compress_level": COMPRESSION}
    return _saved(figure, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs=compression)


def svg(figure: Figure) -> bytes:
    """SVG with text that can be searched and selected, in the viewer's fonts."""
    with plain_style():
        return _saved(figure, format="svg", metadata=dict.fromkeys(NAMELESS))


def _saved(figure: Figure, **how: object) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a model may be called anything
        figure.savefig(file, **how)  # type: ignore[arg-type]
    return file.getvalue()
