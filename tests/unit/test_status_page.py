"""The page that a worker writes and its parent reads, through one file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.schema import WHOLE
from harness.worker.status_page import SIZE, Activity, PhaseTimes, StatusPage
from tests.factories import Clock


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "page", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


def test_the_other_side_reads_what_was_written_last(descriptor: int) -> None:
    worker, parent = StatusPage(descriptor), StatusPage(descriptor)
    worker.write(Activity(phase="a long phase name", variant="inductor", rounds=123))
    worker.write(Activity(phase="measure", variant="eager", rounds=7))
    assert parent.read() == Activity(phase="measure", variant="eager", rounds=7)
    assert worker.read() == parent.read()


@pytest.mark.parametrize(
    "torn",
    [
        *(b"", b'["measure", "ind', b'["measure", "inductor"]', b"null"),
        *(b"\xff\xfe", b'[1, 2, "x"]', b'{"a": 1}'),
        *(b"[" * (SIZE - 1), b'["a", "b", 1e999]'),  # what a model may write
    ],
)
def test_a_torn_page_gives_the_state_before(descriptor: int, torn: bytes) -> None:
    worker, parent = StatusPage(descriptor), StatusPage(descriptor)
    before = Activity(phase="check", variant="aot_eager", rounds=2)
    worker.write(before)
    assert parent.read() == before
    os.pwrite(descriptor, torn + b"\0", 0)
    assert parent.read() == before
    os.ftruncate(descriptor, 0)  # a map of the file would now end the reader
    assert parent.read() == before


def test_a_text_that_does_not_fit_is_never_read_as_another(descriptor: int) -> None:
    worker, parent = StatusPage(descriptor), StatusPage(descriptor)
    worker.write(Activity(phase="check", variant="a"))
    assert parent.read().variant == "a"
    worker.write(Activity(phase="check", variant="b" * 2 * SIZE))
    assert parent.read() == Activity(phase="check", variant="a")
    worker.write(Activity(phase="check", variant="c"))
    assert parent.read() == Activity(phase="check", variant="c")


# -- where a worker's time went ----------------------------------------------------------------
def test_time_belongs_to_the_phase_announced_last_and_to_nobody_between_calls() -> None:
    clock = Clock()
    heard: list[Activity] = []
    times = PhaseTimes(heard.append, clock)
    with times.call():
        times.announce(Activity(phase="build"))
        clock.now += 2
        times.announce(Activity(phase="eager"))
        clock.now += 3
    clock.now += 50  # the parent thinks
    for candidate in ("a", "b"):
        with times.call():
            times.announce(Activity(phase="compile", variant=candidate))
            clock.now += 5
            times.announce(Activity(phase="check", variant=candidate))
            clock.now += 1
    with times.call():
        for variant in ("a", "baseline", "b"):
            times.announce(Activity(phase="warm up", variant=variant))
            clock.now += 0.5
        spent = times.spent()
    of_one = {"spent_compile_s": 5.0, "spent_check_s": 1.0}
    assert spent == {
        WHOLE: {"spent_build_s": 2.0, "spent_eager_s": 3.0, "spent_warm_up_s": 1.5},
        "a": of_one,
        "b": of_one,
    }
    assert [activity.phase for activity in heard][:3] == ["build", "eager", "compile"]
