"""State under other names: told by what a call leaves there."""

import math

from trackside.comparison.audit import nearest_leaves


def test_leaves_are_matched_by_what_a_call_left_there_and_not_by_order() -> None:
    wanted = {"norm.mean": [0.5, 0.8, 4.0], "norm.var": [4.1, 6.0, 4.0], "norm.count": [1.0, 1.0, 1.0]}
    moved = {"c": [1.0, 1.0, 1.0], "v": [4.1000001, 6.0, 4.0], "m": [0.5, 0.8000001, 4.0]}
    assert nearest_leaves(wanted, moved) == {"norm.mean": "m", "norm.var": "v", "norm.count": "c"}


def test_no_leaf_stands_for_two_nor_for_one_of_another_size() -> None:
    wanted = {"first": [1.0, 1.5, 4.0], "second": [1.0, 1.5, 4.0], "third": [1.0, 1.5, 8.0]}
    assert nearest_leaves(wanted, {"only": [1.1, 1.6, 4.0]}) == {"first": "only"}
    assert nearest_leaves(wanted, {}) == {}


def test_a_leaf_that_is_not_finite_stands_for_none() -> None:
    assert nearest_leaves({"mean": [1.0, 1.5, 4.0]}, {"m": [math.nan, math.inf, 4.0]}) == {}
