"""Work that another thread has the main thread do, in a real interpreter of its own."""

import ctypes
import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from trackside.profiling.progress import progress_meter
from trackside.profiling.safe_point import Obstacle, SafePoint, obstacle
from trackside.profiling.watcher import Watcher

assert ctypes  # as torch does

PROGRAM = """
import ctypes, signal, sys, threading, time
from trackside.profiling.safe_point import SafePoint
from trackside.profiling.watcher import Watcher

seen = []

def work():
    seen.append(threading.current_thread() is threading.main_thread())
    if len(seen) == 1:
        {raised}

point = SafePoint(work)

def look():
    if seen:
        return None
    else:
        point.ask()
    return 0.001

watcher = Watcher(look)
watcher.start(0.001)
try:
    until = time.monotonic() + 20
    while time.monotonic() < until and {going}:
        sum(range(100))
    print("went on", seen)
except BaseException as error:
    print(type(error).__name__, error.args, seen)
"""


def told(raised: str, going: str = "True") -> str:
    done = subprocess.run(
        [sys.executable, "-c", dedent(PROGRAM).format(raised=raised, going=going)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_main_thread_does_it_and_goes_on() -> None:
    assert told("pass", "not seen") == "went on [True]"


def test_what_a_handler_raised_meanwhile_reaches_the_program_as_it_was() -> None:
    assert told("raise KeyboardInterrupt") == "KeyboardInterrupt () [True]"
    assert told("raise SystemExit(7)") == "SystemExit (7,) [True]"
    assert told("signal.raise_signal(signal.SIGINT)") == "KeyboardInterrupt () [True]"


def test_nothing_is_done_in_the_middle_of_an_import_or_of_a_compilation() -> None:
    def frame_in(file: str):  # type: ignore[no-untyped-def]
        names: dict[str, object] = {"sys": sys}
        exec(compile("frame = sys._getframe()", file, "exec"), names)
        return names["frame"]

    def found(file: str) -> Obstacle | None:
        return obstacle(frame_in(file))

    assert obstacle(sys._getframe()) is None
    assert found("<frozen importlib._bootstrap>") is Obstacle.IMPORT
    assert found("/x/site-packages/torch/_dynamo/convert_frame.py") is Obstacle.COMPILER
    # While compiled code runs, and a backward function of Python's, torch has a range open.
    assert found("/x/site-packages/torch/_dynamo/eval_frame.py") is Obstacle.RANGE
    assert found("/tmp/torchinductor_me/ab/cab.py") is Obstacle.RANGE
    assert found("/x/site-packages/torch/autograd/function.py") is Obstacle.RANGE
    assert found("/x/site-packages/torch/autograd/graph.py") is None


def test_a_signal_between_the_call_and_the_next_look_is_not_lost() -> None:
    # The watcher ends with the first look, as it does when a capture gives up.
    assert told("time.sleep(0.05); raise KeyboardInterrupt").startswith("KeyboardInterrupt")


def test_work_that_was_not_asked_for_is_not_done() -> None:
    done: list[int] = []
    point = SafePoint(lambda: done.append(1))
    assert done == []
    assert not point.asked


def test_a_closed_watcher_looks_no_more() -> None:
    looks: list[int] = []
    once, ended = threading.Event(), threading.Event()

    def look() -> float | None:
        looks.append(1)
        once.set()
        return 0.001

    watcher = Watcher(look)
    watcher.start(0.0)
    assert once.wait(20)
    watcher.close()
    ended.wait(0.1)
    count = len(looks)
    ended.wait(0.1)
    assert len(looks) == count
    watcher.close()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python counts changes of dictionaries until 3.13")
def test_the_same_work_is_the_same_progress() -> None:
    meter = progress_meter()
    assert meter is not None

    def work(turns: int) -> int:
        before = meter()
        for turn in range(turns):
            assert {"a": turn}
        return meter() - before

    work(10)
    one, many = work(1000), work(3000)
    assert one > 1000
    assert many == pytest.approx(3 * one, rel=0.01)
