"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# the same examples each time: a test that fails in CI fails here too; `--hypothesis-profile=default` searches
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
