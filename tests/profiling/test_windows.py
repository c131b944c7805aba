"""A run's windows, on steps of given lengths."""

import pytest

from trackside.profiling.windows import Limits, Stage, Stretches, Windows

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


def test_a_program_of_slow_steps_needs_eleven_of_them() -> None:
    assert counts(followed([2.0] * 12)) == {"warm": 3, "A": 3, "L": 1, "T": 2, "B": 2, "done": 0}


def test_quick_steps_are_watched_for_as_long_as_figures_need() -> None:
    assert counts(followed([0.001] * 200)) == {"warm": 3, "A": 50, "L": 10, "T": 10, "B": 5, "done": 0}
    assert counts(followed([0.2] * 40)) == {"warm": 3, "A": 8, "L": 3, "T": 3, "B": 3, "done": 0}


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
    assert asked == {"warm": 1, "A": 4, "L": 2, "T": 4, "B": 4, "done": 0}
    assert counts(followed([0.1] * 40, Limits(warmup=2, seconds=1.0)))["T"] == 10


def test_time_between_windows_belongs_to_no_step() -> None:
    windows = followed([0.5] * 12, pause=7.0)
    for window in windows.past:
        assert window.steps_ns == [SECOND // 2] * len(window.ends_ns)


def test_a_program_that_ends_early_leaves_its_last_window_unfinished() -> None:
    windows = followed([1.0] * 8)
    assert windows.stage is Stage.TRACED
    assert len(windows.now.ends_ns) == 1


def stretched(seconds: float, limits: Limits = ON_ITS_OWN, pause: float = 0.0) -> list[tuple[str, float]]:
    """Stages by the clock, looked at every 10 ms, each with when it began; changing takes a pause."""
    stretches, windows = Stretches(limits, 0), Windows(limits, 0)
    began, now = [], 0.0
    while now < seconds:
        due = stretches.due(windows.now, int(now * SECOND))
        if due is not None:
            now += pause
            windows.begin(due, int(now * SECOND))
            began.append((due.value, round(now, 2)))
            if due is Stage.DONE:
                stretches.round_ended()
        now += 0.01
    return began


def test_without_steps_a_program_of_a_second_and_a_half_has_all_windows() -> None:
    assert [stage for stage, _ in stretched(1.5, pause=0.1)] == ["A", "N", "L", "T", "B", "done"]


def test_a_program_that_runs_on_has_longer_windows_behind_its_loading() -> None:
    began = stretched(30.0)
    assert [stage for stage, _ in began] == 2 * ["A", "N", "L", "T", "B", "done"]
    first, second = began[:6], began[6:]
    assert second[0][1] == pytest.approx(5.0, abs=0.1)
    assert second[1][1] - second[0][1] > 3 * (first[1][1] - first[0][1])


def test_seconds_asked_for_are_those_of_every_window() -> None:
    began = stretched(30.0, Limits(seconds=2.0))
    assert [stage for stage, _ in began] == ["A", "N", "L", "T", "B", "done"]
    # What operators are called with is known after half a second.
    assert [at for _, at in began] == pytest.approx([1.0, 3.0, 3.5, 5.5, 7.5, 9.5], abs=0.05)
    assert stretched(3.0, Limits(seconds=0.1, warmup=0))[0] == ("A", 0.0)


def test_a_traced_window_does_not_outlast_the_steps_by_much() -> None:
    windows = followed([0.5] * 11, Limits(warmup=1, steps=4))
    assert windows.stage is Stage.ATTRIBUTED
    began = windows.now.began_ns
    assert not windows.is_stuck(began + 59 * SECOND)
    assert windows.is_stuck(began + 61 * SECOND)
    slow = followed([40.0] * 11, Limits(warmup=1, steps=4))
    assert not slow.is_stuck(slow.now.began_ns + 150 * SECOND)
    assert slow.is_stuck(slow.now.began_ns + 170 * SECOND)
    assert not followed([0.5] * 3, Limits(warmup=1, steps=4)).is_stuck(1000 * SECOND)


FIXED = Limits(fixed=True)


@pytest.mark.parametrize("steps", [[0.001] * 40, [3.0] * 40, [20.0, 9.0, *[0.1, 0.5] * 19]])
def test_ranks_have_their_windows_at_the_same_steps_whatever_their_pace(steps: list[float]) -> None:
    windows = followed(steps, FIXED)
    assert counts(windows) == {"warm": 5, "A": 10, "L": 3, "T": 10, "B": 3, "done": 0}
    ends = [sum(steps[: number + 1]) for number in range(len(steps))]
    traced = windows.past[3]
    # Starting the profiler took one of them longer, for which the others waited in the step after it.
    assert traced.began_ns == pytest.approx(ends[18] * SECOND)
    assert traced.ends_ns[-1] == pytest.approx(ends[28] * SECOND)


def test_numbers_asked_for_hold_on_ranks_too_and_seconds_do_not_part_them() -> None:
    asked = Limits(warmup=1, steps=2, seconds=100.0, fixed=True)
    assert counts(followed([0.1] * 12, asked)) == {"warm": 1, "A": 2, "L": 1, "T": 2, "B": 2, "done": 0}


def moments(late: float, origin: float | None, until: float) -> list[tuple[str, float]]:
    """When windows by the clock begin on a rank that changes them so many seconds late."""
    window = Windows(FIXED, 0)
    common = None if origin is None else int(origin * SECOND)
    stretches = Stretches(FIXED, 0, lambda now: common if common is not None and now >= common else None)
    found, now = [], 0
    while now < until * SECOND:
        now += SECOND // 100
        stage = stretches.due(window.now, now)
        if stage is not None:
            now += int(late * SECOND)
            window.begin(stage, now)
            found.append((stage.value, now / SECOND))
            if stage is Stage.DONE:
                stretches.round_ended()
    return found


def test_by_the_clock_ranks_change_windows_at_common_moments_and_delays_do_not_add_up() -> None:
    quick, slow = moments(0.0, 2.0, 12), moments(0.1, 2.0, 12)
    stages = [*("A", "T", "B", "done"), *("A", "N", "L", "T", "B", "done")]
    assert [stage for stage, _ in quick] == [stage for stage, _ in slow] == stages
    assert quick[0][1] == pytest.approx(2.3, abs=0.02)
    for (_, one), (_, other) in zip(quick, slow, strict=True):
        assert 0 <= other - one <= 0.13


def test_by_the_clock_a_rank_waits_for_the_common_moment() -> None:
    assert moments(0.0, None, 40) == []


def test_a_window_that_began_late_is_not_cut_to_nothing() -> None:
    began = dict(moments(0.4, 0.0, 4))
    assert began["T"] - began["A"] >= 0.15


def stages_by_the_clock(with_kept: bool) -> list[str]:
    windows, stretches = Windows(ON_ITS_OWN, 0), Stretches(ON_ITS_OWN, 0)
    found = []
    for now in range(0, 20 * SECOND, SECOND // 100):
        if (stage := stretches.due(windows.now, now)) is not None:
            windows.begin(stage, now)
            stretches.with_kept = with_kept
            found.append(stage.value)
            if stage is Stage.DONE:
                stretches.round_ended()
    return found


def test_what_operators_are_called_with_is_noted_behind_the_untraced_window() -> None:
    assert stages_by_the_clock(with_kept=False) == 2 * ["A", "N", "L", "T", "B", "done"]


def test_memory_is_kept_in_a_window_of_its_own_where_a_step_takes_it_anew() -> None:
    # What the heap is told cannot be undone, so only behind the last that is untraced.
    both = [*("A", "N", "L", "T", "B", "done"), *("A", "N", "L", "T", "B", "K", "done")]
    assert stages_by_the_clock(with_kept=True) == both
    windows = Windows(ON_ITS_OWN, 0)
    windows.with_kept = True
    windows.begin(Stage.ATTRIBUTED, 0)
    assert windows.following is Stage.KEPT
    fixed = Windows(FIXED, 0)
    fixed.with_kept = True
    fixed.begin(Stage.ATTRIBUTED, 0)
    # One rank cannot have a window more than the others.
    assert fixed.following is Stage.DONE
