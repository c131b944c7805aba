"""Lengths of steps, from windows whose steps are known."""

from typing import Any

import numpy as np
import pytest

from trackside.profiling.window_times import by_progress, by_steps
from trackside.trace.steps import Steps

MS = 1_000_000


def window(length_ms: float, samples: list[tuple[float, int]] | None = None) -> dict[str, Any]:
    progress = [(int(ms * MS), count) for ms, count in samples or ()]
    return {"began_ns": 0, "ends_ns": [], "closed_ns": int(length_ms * MS), "progress": progress}


def steps(length_ms: float, count: int) -> Steps:
    begin = (np.arange(count) * length_ms * MS).astype(np.int64)
    return Steps(begin, begin + int(length_ms * MS), "repetition")


def test_an_untraced_window_that_got_on_twice_as_fast_had_steps_half_as_long() -> None:
    # Traced: 100 changes in each step of 4 ms. Untraced: as many in 2 ms; each reading counts one itself.
    untraced = [(10.0 * i, i * 501) for i in range(11)]
    windows = {"A": window(100, untraced), "T": window(40, [(0, 0), (40, 1001)]), "B": window(40)}
    a, t, b = by_progress(windows, steps(4.0, 8), 10.0, steps(6.0, 5))
    assert (a.window, a.steps, a.slowdown) == ("A", 50, None)
    assert a.step_ms == pytest.approx(2.0)
    assert a.spread == pytest.approx(0.0, abs=1e-9)
    assert (t.steps, t.step_ms) == (8, pytest.approx(4.0))
    assert t.slowdown == pytest.approx(2.0)
    assert b.slowdown == pytest.approx(3.0)


def test_steps_that_vary_show_as_spread() -> None:
    untraced = [(0.0, 0)]
    for i in range(20):
        at, count = untraced[-1]
        untraced.append((at + (16.0 if i % 2 else 24.0), count + 201))
    windows = {"A": window(400, untraced), "T": window(100, [(0, 0), (100, 1001)])}
    a = by_progress(windows, steps(10.0, 10), 10.0, None)[0]
    assert a.step_ms == pytest.approx(10.0)
    assert a.spread == pytest.approx(0.4)


def test_without_progress_the_untraced_window_tells_nothing() -> None:
    still = {"A": window(100, [(0, 0), (100, 5)]), "T": window(40, [(0, 0), (40, 5)])}
    assert [one.window for one in by_progress(still, steps(4.0, 10), 10.0, None)] == ["T"]
    none = {"A": window(100), "T": window(40)}
    (only,) = by_progress(none, steps(4.0, 10), 10.0, None)
    assert (only.window, only.slowdown) == ("T", None)
    assert by_progress({}, None, 0.0, None) == []


def test_steps_longer_than_a_look_are_taken_together() -> None:
    untraced = [(50.0 * i, i * 26) for i in range(21)]
    windows = {"A": window(1000, untraced), "T": window(400, [(0, 0), (400, 201)])}
    a = by_progress(windows, steps(200.0, 2), 2.0, None)[0]
    assert a.step_ms == pytest.approx(200.0)
    assert a.steps == 5


def test_a_device_that_lags_behind_makes_the_step_longer_than_the_hosts() -> None:
    ends = [int(i * 2 * MS) for i in range(1, 11)]
    told = {"began_ns": 0, "ends_ns": ends, "closed_ns": 100 * MS, "progress": []}
    (a,) = by_steps({"A": told})
    assert a.step_ms == pytest.approx(10.0)
