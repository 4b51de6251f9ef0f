"""Where a worker's time went."""

from harness.schema import WHOLE
from harness.worker.phase_times import PhaseTimes
from harness.worker.status_page import Activity
from tests.factories import Clock


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
        found = times.spent()
    of_one = {"spent_compile_s": 5.0, "spent_check_s": 1.0}
    assert found == {
        WHOLE: {"spent_build_s": 2.0, "spent_eager_s": 3.0, "spent_warm_up_s": 1.5},
        "a": of_one,
        "b": of_one,
    }
    assert [activity.phase for activity in heard][:3] == ["build", "eager", "compile"]
