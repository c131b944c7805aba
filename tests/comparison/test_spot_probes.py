"""Which probes a timed process gets at a secret moment, and how many where time is short."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from trackside.comparison.probe_kinds import PROBES
from trackside.comparison.probing import _due
from trackside.comparison.study import Study

BENCH: Any = SimpleNamespace(rng=random.Random(7))


def study(probe_seconds: float, run_ns: float = 1e5) -> Study:
    return Study({}, probes=dict.fromkeys(PROBES, "passed"), probe_seconds=probe_seconds, run_ns=run_ns)


@pytest.mark.parametrize(
    ("pairs", "seconds", "probe_seconds", "count"),
    [
        # Time for as many as there are at most.
        (6, 4.0, 0.05, 4),
        # For fewer.
        (12, 4.0, 0.25, 2),
        # For none: all pairs together still meet every kind.
        (6, 0.9, 0.25, 3),
        (12, 0.9, 0.25, 2),
    ],
)
def test_a_pair_gets_as_many_probes_as_it_has_time_for(
    pairs: int, seconds: float, probe_seconds: float, count: int
) -> None:
    known = study(probe_seconds)
    met = [_due(BENCH, known, pairs, seconds) for _ in range(pairs)]
    assert {len(kinds) for kinds in met} == {count}
    assert {kind for kinds in met for kind in kinds} == set(PROBES)


def test_none_comes_again_before_all_others_had_their_turn() -> None:
    known = study(0.05)
    met = [kind for _ in range(7) for kind in _due(BENCH, known, 6, 4.0)]
    assert len(PROBES) == 14
    assert set(met[:14]) == set(met[14:]) == set(PROBES)


def test_calls_that_take_long_are_probed_once_a_moment() -> None:
    assert len(_due(BENCH, study(5.0, run_ns=50e6), 6, 4.0)) == 1
