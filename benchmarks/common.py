"""What the benchmarks share: the parser of their flags."""

from __future__ import annotations

import argparse


def new_parser(about: str | None) -> argparse.ArgumentParser:
    """``about``: the docstring of the script, which ``--help`` shows as it is."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
