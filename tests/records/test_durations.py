"""Durations are written in one way, with three digits and the unit that suits."""

from __future__ import annotations

import pytest

from trackside.records.durations import duration


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (0.4, "0 ns"),
        (830, "830 ns"),
        (999.6, "1 µs"),
        (4_200, "4.2 µs"),
        (99_960, "100 µs"),
        (999_600, "1 ms"),
        (31_416_000, "31.4 ms"),
        (211_600_000, "212 ms"),
        (1.5e9, "1.5 s"),
        (1.2344e12, "1234 s"),
    ],
)
def test_three_digits_and_the_unit_that_suits(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_a_change_has_its_sign() -> None:
    assert duration(-2.5e6) == "-2.5 ms"
    assert duration(2.5e6, signed=True) == "+2.5 ms"
    assert duration(0, signed=True) == "0 ms"
