"""What a handler of a signal raises in our code is the program's."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.profiling.test_capture import TRAINING, profiled

from trackside.profiling.handler_errors import is_a_handlers


class Late(Exception):
    pass


def late(number: int, frame: Any) -> None:
    raise Late


class Alarm:
    def method(self, number: int, frame: Any) -> None:
        late(number, frame)

    __call__ = method


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


def error_of(work: Callable[[], object]) -> BaseException:
    with pytest.raises(Late) as found:
        work()
    return found.value


@pytest.mark.parametrize("handler", [late, Alarm().method, Alarm()], ids=["function", "method", "object"])
def test_what_a_handler_raises_is_told_from_what_is_raised_without_one(handler: Any) -> None:
    assert not is_a_handlers(error_of(lambda: late(0, None)))
    signal.signal(signal.SIGALRM, handler)
    assert is_a_handlers(error_of(lambda: signal.raise_signal(signal.SIGALRM)))


def test_a_program_s_time_out_that_comes_while_a_window_changes_is_not_lost(tmp_path: Path) -> None:
    # An alarm at the worst moment: the program's stand-in for the first thing that we ask torch for.
    source = TRAINING.replace(
        "for step in range(steps):",
        "import signal, torch\n"
        "def late(number, frame):\n    raise TimeoutError('mine')\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "torch._C._autograd._profiler_enabled = lambda: signal.raise_signal(signal.SIGALRM)\n"
        "for step in range(steps):",
    )
    ended, messages = profiled(tmp_path, source, "30", warmup=1, steps=2)
    assert ended.exit_code == 1
    assert [one["text"] for one in messages if one["kind"] == "trouble"] == [
        "a signal came while a window was being changed"
    ]
