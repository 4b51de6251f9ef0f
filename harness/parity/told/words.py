"""Why a tensor fails, in words: the candidate, eager and noisy eager side by side."""

from __future__ import annotations

from harness.parity.rule import FIGURES, Judgment, Ranked, Truth

DIRECTED = 0.5  # share of an error that is a wrong factor


def of_rank(truth: Truth, judgment: Judgment, rank: Ranked | None) -> str:
    """``rank``: among noisy eager on neighbors of the data; None: a failure on this data alone."""
    name, error = judgment.name, judgment.error
    if name not in truth.eager:  # a part of the model
        eager = truth.slopes[name][0]
        limit = judgment.limits["slope"] if rank is None else rank.limit("slope")
        size = "large" if error.slope > 0 else "small"
        words = f"as if {name} were {abs(error.slope):.2%} too {size}"
        return f"{words}; eager: {abs(eager):.2%}; limit: {limit:.2%}"
    own = truth.relative(name, truth.own[name])
    beyond = rank.figures if rank is not None else judgment.beyond
    figure = next((figure for figure in FIGURES if figure in beyond), "size")
    ours, theirs = own.of(figure), error.of(figure)
    draws = rank.noise if rank is not None else ()
    noisy = max([truth.noisy(name, figure)[0], *(draw.of(figure) for draw in draws)])
    what = {"size": "", "part": " in its worst part", "slope": " on the whole"}[figure]
    words = f"off by {_share(theirs)}{what}; eager: {_share(ours)}; noisy eager: {_share(noisy)}"
    if rank is not None:
        least = min(each.of(figure) for each in rank.errors)
        words += f"; limit: {_share(rank.limit(figure))}"
        words += f"; on {len(rank.errors)} of {len(rank.errors)} data sets, by {_share(least)} at least"
    if abs(error.slope) >= DIRECTED * error.size > 0.0 and figure != "slope":
        words += f"; {_share(error.slope)} too {'large' if error.slope > 0 else 'small'} on the whole"
    elif figure == "size":
        words += "; without a direction"
    return f"{words}; {'eager' if ours < theirs else 'the candidate'} is nearer to fp64"


def _share(value: float) -> str:
    return f"{abs(value) * 100:.2g} %"
