"""Recordings in this very process: what they leave, and when there must be no other."""

import resource
import threading
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from trackside.profiling.recording import Recording


def recording(folder: Path) -> Recording:
    return Recording(str(folder), lambda file: file == __file__, lambda text: None)


@pytest.mark.parametrize("keep", [True, False])
def test_after_a_range_was_left_open_there_is_no_second_recording(tmp_path: Path, keep: bool) -> None:
    made = recording(tmp_path)
    made.begin()
    epoch = record_function('an "epoch" of mine')
    epoch.__enter__()
    torch.ones(3) + 1
    made.end(aside=False) if keep else made.drop()
    with pytest.raises(RuntimeError, match=r"the range .*epoch.* was open when a recording ended"):
        made.begin()
    epoch.__exit__(None, None, None)
    assert not torch._C._autograd._profiler_enabled()
    assert (tmp_path / "trace.json").exists() is keep
    assert not list(tmp_path.glob("dropped*"))


def test_torch_s_own_short_ranges_do_not_count(tmp_path: Path) -> None:
    made = recording(tmp_path)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    ended = []

    def ends(*_: object) -> None:
        if not ended:
            made.drop()
            ended.append(True)

    handle = optimizer.register_step_post_hook(ends)
    made.begin()
    weight.sum().backward()
    optimizer.step()
    handle.remove()
    made.begin()
    torch.ones(3) + 1
    made.end(aside=False)
    assert "aten::add" in (tmp_path / "trace.json").read_text()


def test_a_collective_that_was_just_over_does_not_count(tmp_path: Path) -> None:
    made = recording(tmp_path)
    made.begin()
    collective = record_function("gloo:all_reduce")
    collective.__enter__()
    made.drop()
    collective.__exit__(None, None, None)
    made.begin()
    torch.ones(3) + 1
    made.end(aside=False)
    assert "aten::add" in (tmp_path / "trace.json").read_text()


def test_a_second_recording_after_closed_ranges_is_like_the_first(tmp_path: Path) -> None:
    made = recording(tmp_path)
    for _ in range(2):
        made.begin()
        made.begin_log()
        with record_function("step"):
            torch.ones(3) + 1
        made.end(aside=False)
        assert '"step"' in (tmp_path / "trace.json").read_text()
        assert {one.name for one in tmp_path.iterdir()} == {
            "trace.json",
            "lines.json",
            "modules.json",
            "memory.json",
            "sources.json",
        }


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize("acc_events", [True, False])
def test_a_profiler_of_the_program_s_that_warms_up_is_left_alone(tmp_path: Path, acc_events: bool) -> None:
    made = recording(tmp_path)
    own = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=2, active=1, repeat=2),
        acc_events=acc_events,
    )
    own.start()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a profiler of its own"):
            made.begin()
        own.step()
        own.step()
        with pytest.raises(RuntimeError, match="a profiler of its own"):
            made.begin()
        torch.ones(3) + 1
        own.step()
    own.stop()
    assert any(event.name == "aten::add" for event in own.events())
    made.begin()
    made.drop()


def test_a_profiler_in_another_thread_of_the_program_s_is_left_alone(tmp_path: Path) -> None:
    made = recording(tmp_path)
    runs, over = threading.Event(), threading.Event()
    seen: list[str] = []

    def works() -> None:
        with profile(activities=[ProfilerActivity.CPU]) as own:
            runs.set()
            over.wait()
            torch.ones(3) + 1
        seen.extend(event.name for event in own.events())

    thread = threading.Thread(target=works)
    thread.start()
    runs.wait()
    try:
        with pytest.raises(RuntimeError, match="a profiler of its own"):
            made.begin()
    finally:
        over.set()
        thread.join()
    assert "aten::add" in seen
    made.begin()
    made.drop()


def test_a_trace_for_which_there_is_no_room_is_said_to_be_missing_and_nothing_stays(tmp_path: Path) -> None:
    made = recording(tmp_path)
    made.begin()
    for _ in range(200):
        torch.ones(3) + 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match="is there room for it"):
            made.end(aside=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_profiler_that_another_thread_starts_begins_when_ours_has_ended(tmp_path: Path) -> None:
    made = recording(tmp_path)
    made.begin()
    seen: list[str] = []

    def works() -> None:
        with profile(activities=[ProfilerActivity.CPU]) as own:
            torch.ones(3) + 1
        seen.extend(event.name for event in own.events())

    thread = threading.Thread(target=works)
    thread.start()
    while thread.is_alive():
        if made.is_awaited:
            made.tick()
        thread.join(0.001)
    assert "aten::add" in seen
    with pytest.raises(RuntimeError, match="started a profiler of its own"):
        made.end(aside=False)
