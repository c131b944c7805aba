"""A run's windows, on steps of given lengths."""

import pytest

from trackside.profiling.windows import Limits, Stage, Windows

SECOND = 1_000_000_000
ON_ITS_OWN = Limits()


def followed(steps: list[float], limits: Limits = ON_ITS_OWN, pause: float = 0.0) -> Windows:
    """Steps of so many seconds; changing windows takes a pause."""
    now = 0
    windows = Windows(limits, now)
    for step in steps:
        now += int(step * SECOND)
        following = windows.step_ended(now)
        if following is not windows.stage:
            now += int(pause * SECOND)
            windows.begin(following, now)
    return windows


def counts(windows: Windows) -> dict[str, int]:
    return {window.stage.value: len(window.ends_ns) for window in [*windows.past, windows.now]}


def test_a_program_of_slow_steps_needs_ten_of_them() -> None:
    assert counts(followed([2.0] * 12)) == {"warm": 3, "A": 3, "T": 2, "B": 2, "done": 0}


def test_quick_steps_are_watched_for_as_long_as_figures_need() -> None:
    assert counts(followed([0.001] * 200)) == {"warm": 3, "A": 50, "T": 10, "B": 5, "done": 0}
    assert counts(followed([0.2] * 40)) == {"warm": 3, "A": 8, "T": 3, "B": 3, "done": 0}


def test_warming_up_goes_on_until_steps_no_longer_get_faster() -> None:
    compiling = [20.0, 5.0, 1.0, 0.6, 0.3, 0.11, 0.1, 0.1, 0.1]
    windows = followed(compiling + [0.1] * 60)
    assert counts(windows)["warm"] == 7
    assert max(windows.past[1].steps_ns) == pytest.approx(0.1 * SECOND)


def test_steps_that_never_settle_are_measured_all_the_same() -> None:
    assert counts(followed([0.01, 0.05] * 60))["warm"] == 20
    assert counts(followed([30.0, 50.0, 90.0, 20.0, 80.0]))["warm"] == 2


def test_what_the_user_asks_for_holds() -> None:
    asked = counts(followed([0.1] * 40, Limits(warmup=1, steps=4)))
    assert asked == {"warm": 1, "A": 4, "T": 4, "B": 4, "done": 0}
    assert counts(followed([0.1] * 40, Limits(warmup=2, seconds=1.0)))["T"] == 10


def test_time_between_windows_belongs_to_no_step() -> None:
    windows = followed([0.5] * 12, pause=7.0)
    for window in windows.past:
        assert window.steps_ns == [SECOND // 2] * len(window.ends_ns)


def test_a_program_that_ends_early_leaves_its_last_window_unfinished() -> None:
    windows = followed([1.0] * 7)
    assert windows.stage is Stage.TRACED
    assert len(windows.now.ends_ns) == 1
