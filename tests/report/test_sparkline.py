"""Series as lines of blocks."""

import pytest

from trackside.report.sparkline import sparkline, telemetry_rows


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([0.0, 1.0], "▁█"),
        ([0.0, 0.5, 1.0], "▁▅█"),
        ([2.0, -1.0], "█▁"),
        ([], ""),
    ],
)
def test_points_are_drawn_between_the_bounds(points: list[float], wanted: str) -> None:
    assert sparkline(points, 0.0, 1.0) == wanted


def test_what_never_changes_is_drawn_in_the_middle() -> None:
    assert sparkline([5.0, 5.0], 5.0, 5.0) == "▄▄"


def test_more_points_than_fit_become_means() -> None:
    assert sparkline([0.0, 0.0, 1.0, 1.0, 0.0, 1.0], 0.0, 1.0, width=3) == "▁█▅"


def test_a_gpu_is_shown_by_clock_and_power_and_a_cpu_by_what_was_stolen() -> None:
    row = {"min": 345.0, "median": 1980.0, "mean": 1900.0, "max": 1980.0, "points": [345.0, 1980.0]}
    power = {"min": 90.0, "median": 600.0, "mean": 550.0, "max": 700.0, "points": [90.0, 700.0]}
    steal = {"min": 0.0, "median": 0.0, "mean": 0.012, "max": 0.2, "points": [0.0, 0.2]}
    gpu = dict(telemetry_rows({"series": {"gpu.sm_mhz": row, "gpu.power_w": power, "cpu.steal": steal}}))
    assert gpu == {
        "GPU clock": "▂█ 1,980 MHz (345 to 1,980)",
        "GPU power": "▂█ 600 W (90 to 700)",
    }
    cpu = dict(telemetry_rows({"series": {"cpu.steal": steal}}))
    assert cpu == {"time stolen": "▁█ 1.2% on average, 20% at the worst moment"}
    assert list(telemetry_rows({})) == []
