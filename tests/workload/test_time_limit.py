"""Code that never ends is made to raise where it is; code that ends is left alone."""

import subprocess
import sys
import threading
import time

import pytest

from trackside.workload.time_limit import TooLong, time_limit


def endless() -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:
            pytest.fail("a handler of ordinary exceptions saw it")


def test_an_endless_loop_raises_where_it_is_and_says_after_how_long() -> None:
    began = time.monotonic()
    with pytest.raises(TooLong, match="not done after 1 s") as caught, time_limit(0.6):
        endless()
    assert 0.5 < time.monotonic() - began < 5
    assert "endless" in [entry.name for entry in caught.traceback]


def test_code_that_ends_in_time_is_left_alone_and_no_thread_remains() -> None:
    before = threading.active_count()
    with time_limit(60):
        found = sum(range(1000))
    assert (found, threading.active_count()) == (499_500, before)


def test_an_end_at_the_very_moment_raises_there_or_not_at_all() -> None:
    ended: list[str] = []
    for _ in range(200):
        try:
            with time_limit(0.001):
                time.sleep(0.001)
            ended.append("by itself")
        except TooLong:
            ended.append("too late")
    # One that is raised after its block would end this test, or be missing here.
    time.sleep(0.01)
    assert len(ended) == 200


AFTERWARDS = """
import sys, time
from trackside.workload.time_limit import TooLong, time_limit
try:
    with time_limit(0.05):
        while True:
            {step}
except TooLong:
    pass
sys.settrace(lambda frame, event, argument: None)
(lambda: None)()
print("went on")
"""


@pytest.mark.parametrize(
    "step", ["sum(range(9))", "try: time.sleep(1)\n            except BaseException: break"]
)
def test_the_interpreter_goes_on_as_before_also_under_a_trace_function(step: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS.format(step=step)], capture_output=True, text=True, timeout=20
    )
    assert done.stdout == "went on\n", done.stderr


def test_errors_of_the_code_itself_come_through() -> None:
    with pytest.raises(ValueError, match="its own"), time_limit(60):
        raise ValueError("its own")
