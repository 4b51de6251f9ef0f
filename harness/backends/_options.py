"""The old name of ``shared/options.py``, kept for compilers of users."""

from harness.backends.shared.options import notes_on

__all__ = ("notes_on",)
