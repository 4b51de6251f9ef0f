"""What the figures share: colors, shapes, ticks of ratios, grids and small notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which color-blind readers can distinguish; shapes work without color.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES = ("-", "--", ":", "-.")
GREY = "#666666"
MOST_RATIO = 5.0  # between the ends of an axis; beyond it, ticks are 1, 2 and 5 times powers of ten


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def ratio_ticks(axis: Axis, ends: tuple[float, float], most: int) -> None:
    """At most ``most`` ticks such as ``1.5x`` on a logarithmic axis with these ends."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    wide = ends[1] / ends[0] > MOST_RATIO
    locator = LogLocator(subs=(1.0, 2.0, 5.0), numticks=most) if wide else MaxNLocator(most)
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.set_minor_locator(NullLocator())


def light_grid(ax: Axes, axis: Any = "both", hidden: Collection[str] = ("top", "right")) -> None:
    """Thin lines behind the data, and no frame at the ``hidden`` sides."""
    ax.grid(axis=axis, which="major", color="#DDDDDD", linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    for side in hidden:
        ax.spines[side].set_visible(False)


def note(
    ax: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    coordinates: Any = "axes fraction",
    **style: Any,
) -> None:
    """Small print, ``offset`` points beside the place ``at``. The text is never a formula."""
    ax.annotate(
        text,
        xy=at,
        xycoords=coordinates,
        xytext=offset,
        textcoords="offset points",
        fontsize=7,
        parse_math=False,
        **style,
    )


def styles(order: Sequence[str], first_shape: int = 0) -> dict[str, dict[str, str]]:
    """Color and shape of each name, by its place in ``order``."""
    return {
        name: {"color": COLORS[i % len(COLORS)], "marker": SHAPES[(i + first_shape) % len(SHAPES)]}
        for i, name in enumerate(order)
    }


def legend(ax: Axes, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """One line above the axes, at the left: (label, style of its mark)."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **style) for label, style in entries]
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=len(handles), fontsize=8, frameon=False, borderpad=0.0, **place)


def shortened(names: Iterable[str], room: int) -> dict[str, str]:
    """Each name in ``room`` characters, without its middle. Names that would become equal stay whole."""
    short = {name: shorten(name, room) for name in names}
    count = Counter(short.values())
    return {name: text if count[text] == 1 else name for name, text in short.items()}


def shorten(name: str, room: int) -> str:
    tail = (room - 2) // 2
    return name if len(name) <= room else f"{name[: room - 2 - tail]}..{name[len(name) - tail :]}"
