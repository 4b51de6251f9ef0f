"""The pictures: style, headings, ticks, legends, and figures as bytes without dates and program versions."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeVar

from harness.schema import Scalar
from runner.reports.parts.sections import environment_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colors, which color-blind readers can distinguish; shapes work without color.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES = ("-", "--", ":", "-.")
GREY, PALE = "#666666", "#DDDDDD"
T = TypeVar("T")


@contextmanager
def plain_style() -> Iterator[None]:
    """Our style on matplotlib's default; the user's matplotlibrc must not change the figure."""
    import matplotlib as mpl

    text = {"font.size": 8, "text.parse_math": False, "svg.hashsalt": "torchduet", "svg.fonttype": "none"}
    title = {"axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold"}
    frame = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    grid = {"axes.grid": True, "axes.axisbelow": True, "grid.color": PALE, "grid.linewidth": 0.5}
    ours: Any = text | title | frame | grid
    with mpl.rc_context(mpl.rcParamsDefault), mpl.rc_context(ours):
        yield


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def heading(ax: Axes, title: str, environment: Mapping[str, Scalar], *more: str) -> None:
    """The title, and the conditions of the measurement in small print below it."""
    facts = "; ".join(filter(None, (environment_line(environment), *more)))
    lines = textwrap.wrap(facts, 170, max_lines=3)
    ax.set_title(shorten(title, 90) + "\n" * len(lines))
    small: dict[str, Any] = {"ha": "left", "size": 7, "weight": "normal", "color": GREY}
    ax.set_title("\n".join(lines), loc="center", x=0.0, **small)


def legend(where: Figure | Axes, axes: Iterable[Axes], **options: Any) -> None:
    """Every label of the ``axes`` once."""
    entries = (entry for ax in axes for entry in zip(*ax.get_legend_handles_labels(), strict=True))
    handles = {label: handle for handle, label in entries}
    where.legend(list(handles.values()), list(handles), **options)


def log_ticks(axis: Axis, unit: str = "", most: int = 6) -> None:
    """About ``most`` plain numbers with their ``unit`` on a logarithmic axis, which has its limits."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    axis.set_major_locator(MaxNLocator(most) if high / low < 5 else LogLocator(subs=subs, numticks=most))
    axis.set_major_formatter(f"{{x:,g}}{unit}")
    axis.set_minor_locator(NullLocator())


def styles(order: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Color and shape of each name, by its place in ``order``."""
    marks = zip(order, cycle(COLORS), cycle(SHAPES), strict=False)
    return {name: {"color": color, "marker": shape} for name, color, shape in marks}


def shorten(name: str, room: int) -> str:
    """Without its middle."""
    tail = (room - 2) // 2
    return name if len(name) <= room else f"{name[: room - 2 - tail]}..{name[len(name) - tail :]}"


def by_name(panels: Iterable[tuple[str, T]], draw: Callable[[Sequence[T]], Figure]) -> dict[str, Figure]:
    """One figure for each file name, drawn from all panels with this name."""
    together: dict[str, list[T]] = {}
    for name, panel in panels:
        together.setdefault(name, []).append(panel)
    return {name: draw(members) for name, members in together.items()}


def pictures(figures: Mapping[str, Figure]) -> dict[str, bytes]:
    """The figures as PNG and SVG; the names are those of the PNG files."""
    files = {}
    for name, figure in figures.items():
        files[name] = png(figure)
        figure.set_layout_engine("none")  # the layout is done; computing it again is slow
        files[f"{name.removesuffix('.png')}.svg"] = svg(figure)
    return files


def png(figure: Figure) -> bytes:
    compression = {"compress_level": 3}  # a tenth larger than with the default 6, in a third of the time
    return _saved(figure, format="png", dpi=150, metadata={"Software": None}, pil_kwargs=compression)


def svg(figure: Figure) -> bytes:
    """SVG with text that can be searched and selected, in the viewer's fonts."""
    return _saved(figure, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))


@plain_style()
def _saved(figure: Figure, **how: Any) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a model may be called anything
        figure.savefig(file, **how)
    return file.getvalue()
