"""Settings for every test."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# the same examples each time: a test that fails in CI fails here; `--hypothesis-profile=default` searches
# (no limit of time: a busy machine is no failure)
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

# Before torch is imported, here and in every process that a test starts. One thread each: processes of tests
# run side by side. A test of more threads says so.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")  # as --threads=1 sets both

# inductor otherwise tries in each process which vector instructions compile, for seconds
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# No test reads or writes the folders of the user.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="torchduet-config-")

# Processes of pytest-xdist do not write into each other's compile caches.
if (process := os.environ.get("PYTEST_XDIST_WORKER")) is not None:
    caches = Path(tempfile.gettempdir(), f"torchinductor_{os.getuid()}_{process}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(caches))

HEAVIEST_FIRST = ("cli", "browser", "worker")

gc.disable()  # until all is imported, which stays


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a series, the first row is quick and the others are slow.

    The many short files come last: with them, processes side by side end at about the same time.
    """
    begun = set[str]()
    for item in items:
        if item.get_closest_marker("series") and not {"slow", "long"} & {
            mark.name for mark in item.iter_markers()
        }:
            name = item.nodeid.partition("[")[0]
            if name in begun:
                item.add_marker("slow")
            begun.add(name)
    places = {Path(__file__).with_name(name): place for place, name in enumerate(HEAVIEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent, len(places)))
    gc.freeze()
    gc.enable()
