"""Causes of a slow compiled step, one module each, found by file name.

A module has

    NAME                    the cause, in a few words
    SENTENCE                what happens, as a sentence
    signature(looked)       the evidence, as words; "" if the cause is not there
    SETTINGS                optional: candidates that remove it, each the text between the brackets
    settings(looked)        optional: the same, where they depend on the look
    METRIC                  optional: a metric in us of a step, with ``_low`` and ``_high``: itself the pair
                            with and without the cause
    cost(looked)            optional: ms of the step that it may cost; the most costly causes are tested first

A signature only proposes. The pair of the candidate with the setting and the plain one decides. A cause
without both can only be suspected.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from runner.runs.why.looked import STEP, Looked

OF_DYNAMO = ("functorch.", "dynamo.")  # what every backend of torch.compile takes
MOST = 3  # candidates that remove a cause; with the stages and the copy for looking, six compilations


def causes() -> tuple[Any, ...]:
    """All causes, by file name."""
    files = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A cause that shows, and what removes it. Without settings and without a metric it is only suspected."""

    cause: str  # "" of settings that are tested without one, by --tune
    sentence: str
    evidence: str
    settings: tuple[str, ...] = ()
    metric: str = ""  # us of the step that the cause takes, measured in pairs, with its interval
    part: float | None = None  # of the compiled step, under the profiler; None if not known


def proposals(looked: Looked) -> tuple[Proposal, ...]:
    """The causes whose signatures show, the most costly first, with the settings that remove them."""
    if not looked.compiled:  # the copy for looking failed
        return ()
    costs = {cause.NAME: cause.cost(looked) for cause in causes() if hasattr(cause, "cost")}
    step = looked.compiled.get(STEP) or 1
    return tuple(
        Proposal(
            cause=cause.NAME,
            sentence=cause.SENTENCE,
            evidence=evidence,
            settings=_settings_of(cause, looked),
            metric=getattr(cause, "METRIC", ""),
            part=costs[cause.NAME] / step if cause.NAME in costs else None,
        )
        for cause in sorted(causes(), key=lambda cause: -costs.get(cause.NAME, 0.0))
        if (evidence := cause.signature(looked))
    )


def _settings_of(cause: Any, looked: Looked) -> tuple[str, ...]:
    """The settings that remove the cause; () if none is known."""
    settings = cause.settings(looked) if hasattr(cause, "settings") else getattr(cause, "SETTINGS", ())
    every = "inductor" in looked.compiler
    return tuple(setting for setting in settings if every or setting.startswith(OF_DYNAMO))


def settings_to_try(proposed: Sequence[Proposal]) -> tuple[str, ...]:
    """The first settings of each cause in turn, then the second ones; at most ``MOST``."""
    turns = chain.from_iterable(zip_longest(*(proposal.settings for proposal in proposed)))
    return tuple(dict.fromkeys(filter(None, turns)))[:MOST]
