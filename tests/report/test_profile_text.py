"""A profile on a terminal: one screen, whatever is in it."""

import io

import pytest
from rich.console import Console
from tests.report.profile_records import cpu_program, failed, gpu_training, hostile, large, nothing, ranks

from trackside.records.profile import ProfileRecord
from trackside.report.profile_text import render

SCREEN = 45


def shown(record: ProfileRecord, width: int = 80) -> str:
    out = io.StringIO()
    render(record.to_dict(), Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("make", [cpu_program, gpu_training, failed, nothing, large, ranks])
def test_every_profile_fits_one_screen(make, width: int) -> None:  # type: ignore[no-untyped-def]
    lines = shown(make(), width).splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= width


def test_the_story_is_told_in_order() -> None:
    record = gpu_training()
    text = " ".join(shown(record, 120).split())
    parts = [
        record.verdict,
        "compute 75%",
        "60 untraced 212 ms",
        "line forward backward host share",
        "no line of yours: optimizer",
        "kernel called in runs time share",
        "what to change where gain",
        "Attention is computed step by step",
        "13%–20%",
        "all 6 at once about 33%",
        "Clocks were held down",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, [part for part, at in zip(parts, places, strict=True) if at < 0]
    assert places == sorted(places)


def test_few_ranks_have_a_line_each() -> None:
    text = [" ".join(line.split()) for line in shown(ranks(3, late=1), 120).splitlines()]
    at = text.index("rank step at work waiting for others peak memory ended")
    assert text[at + 1 : at + 4] == [
        "0 212 ms 110 ms 70 ms 33% 40 GB exit code 0",
        "1 212 ms 180 ms 0 µs 0.0% 40 GB exit code 0",
        "2 – – – – not known",
    ]


def test_of_many_ranks_the_slowest_the_median_and_the_fastest_are_shown() -> None:
    text = [" ".join(line.split()) for line in shown(ranks(16), 120).splitlines()]
    at = text.index("rank step at work waiting for others peak memory ended")
    assert [line.split(" ")[:2] for line in text[at + 1 : at + 4]] == [
        ["3", "slowest"],
        ["8", "median"],
        ["0", "fastest"],
    ]
    assert text[at + 4] == "16 ranks in all, by their time at work"


def test_a_record_of_one_process_has_no_ranks() -> None:
    assert "waiting for others" not in shown(gpu_training(), 120)


def test_on_a_cpu_operators_stand_where_kernels_would() -> None:
    text = shown(cpu_program(), 120)
    assert "operator" in text
    assert "kernel" not in text


def test_the_bar_is_as_long_as_its_parts() -> None:
    record = cpu_program()
    lines = shown(record, 80).splitlines()
    drawn = next(line for line in lines if "█" in line and "compute" not in line).strip()
    assert drawn.count("█") / len(drawn) == pytest.approx(6.7 / 9.4, abs=0.02)


def test_names_do_not_steer_the_terminal() -> None:
    text = shown(hostile(), 120)
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) <= 2 * SCREEN
