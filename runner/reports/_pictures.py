"""Figures as bytes: the same figure gives the same bytes, with no date and no program version in them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
COMPRESSION = 3  # of 9: a tenth larger than at the usual 6, in a third of the time
FONT_SIZE = 8.0
NAMELESS = ("Date", "Creator", "Format", "Type")  # what an SVG would say of itself
SALT = "torchduet"  # of the ids inside an SVG, which are random without one


@contextmanager
def plain_style() -> Iterator[None]:
    """Matplotlib as it comes: a reader's own matplotlibrc must not change the picture."""
    import matplotlib as mpl

    with (
        mpl.rc_context(mpl.rcParamsDefault),
        mpl.rc_context({"font.size": FONT_SIZE, "svg.hashsalt": SALT, "svg.fonttype": "none"}),
    ):
        yield


Panel = TypeVar("Panel")


def by_name(
    panels: Iterable[tuple[str, Panel]], draw: Callable[[Sequence[Panel]], Figure]
) -> dict[str, bytes]:
    """The pictures of panels that come with their file's name: those with the same name in one figure."""
    together: dict[str, list[Panel]] = {}
    for name, panel in panels:
        together.setdefault(name, []).append(panel)
    files: dict[str, bytes] = {}
    for name, found in together.items():
        files.update(pictures(name, draw(found)))
    return files


# of a legend in one line above its axes, on the left
ABOVE: Mapping[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1.0),
    "frameon": False,
    "borderaxespad": 0.2,
    "borderpad": 0.0,
}


def pictures(name: str, figure: Figure) -> dict[str, bytes]:
    """The figure as ``name.png`` and ``name.svg``; ``name`` is the PNG's file name."""
    first = png(figure)
    figure.set_layout_engine("none")  # everything has its place now: to find it again takes long
    return {name: first, f"{name.removesuffix('.png')}.svg": svg(figure)}


def png(figure: Figure) -> bytes:
    compression = {"compress_level": COMPRESSION}
    return _saved(figure, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs=compression)


def svg(figure: Figure) -> bytes:
    """As text that can be searched and selected, in the fonts of whoever looks."""
    with plain_style():
        return _saved(figure, format="svg", metadata=dict.fromkeys(NAMELESS))


def _saved(figure: Figure, **how: object) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a model may be called anything
        figure.savefig(file, **how)  # type: ignore[arg-type]
    return file.getvalue()
