"""Writes the table of metrics in ``docs/FORMAT.md``: ``python -m runner.cli.metrics_page``."""

from __future__ import annotations

from pathlib import Path

from harness.declared import GROUPS, Metric
from harness.metrics import declared, metric_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "FORMAT.md"
FIRST, AFTER = "| metric | unit | meaning | where |\n|---|---|---|---|\n", "\n## "


def table() -> str:
    """A line for each metric: first the measured metrics, then the derived ones."""
    metrics = sorted(declared().metrics, key=lambda one: (one.derive is not None, GROUPS.index(one.group)))
    return FIRST + "".join(_line(one) for one in metrics)


def page(text: str) -> str:
    """The page with its table replaced."""
    before, found, rest = text.partition(FIRST)
    if not found:
        raise ValueError(f"{PAGE} has no table of metrics")
    return f"{before}{table()}{AFTER}{rest.partition(AFTER)[2]}"


def _line(one: Metric) -> str:
    names = ", ".join(f"`{name}`" for name in one.names)
    return f"| {names} | {one.unit} | {one.meaning} | {', '.join(_places(one))} |\n"


def _places(one: Metric) -> tuple[str, ...]:
    return (
        "derived" if one.derive else "record",
        *(["table"] if one.columns else []),
        *(["averages"] if one.average else []),
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{len(declared().metrics)} metrics of {len(metric_names())} files: {PAGE}")
