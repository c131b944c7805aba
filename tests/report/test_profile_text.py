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
        "memory of cuda:0: peak 38.4 GB (26% of 150 GB)",
        "51 GB reserved",
        "most by model.py:23 (12.9 GB)",
        "what to change where gain",
        "Attention is computed step by step",
        "13%–20%",
        "first → " + record.findings[0].fix[:40],
        "all 6 at once about 33%",
        "Clocks were held down",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, [part for part, at in zip(parts, places, strict=True) if at < 0]
    assert places == sorted(places)


def test_kernels_that_begin_alike_are_told_apart() -> None:
    record = gpu_training()
    for kernel, what in zip(record.kernels, ("MeanOps", "WelfordOps"), strict=False):
        applied = f"at::native::ReduceOp<float, at::native::{what}<float>, unsigned int>"
        kernel.name = f"void at::native::reduce_kernel<512, 1, {applied} >({applied})"
    text = shown(record)
    assert "reduce_kernel<MeanOps>" in text
    assert "reduce_kernel<WelfordOps>" in text


def test_few_ranks_have_a_line_each() -> None:
    text = [" ".join(line.split()) for line in shown(ranks(3, late=1), 120).splitlines()]
    at = text.index("rank step at work waiting for others peak memory ended")
    assert text[at + 1 : at + 4] == [
        "0 212 ms 110 ms 70 ms 33% 40 GB exit code 0",
        "1 212 ms 180 ms 0 ms 0.0% 40 GB exit code 0",
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


def test_memory_of_the_host_stands_beside_that_of_the_process() -> None:
    text = " ".join(shown(cpu_program(), 120).split())
    assert "memory: tensors take up to 9.2 MB · the process 571 MB (2.3% of 25.3 GB)" in text
    assert "most by loop.py:8 (5 MB) · 200 kB more after every step by loop.py:6" in text


def test_what_is_no_line_is_named_where_it_holds_more() -> None:
    record = cpu_program()
    record.memory[0].lines[0].bytes = 3_000_000
    assert "most by parameters (4 MB), then loop.py:8 (3 MB)" in " ".join(shown(record, 120).split())
    record.memory[0].lines = []
    assert "most by parameters (4 MB) ·" in " ".join(shown(record, 120).split())


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
