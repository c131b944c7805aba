"""Has the program's main thread do something between two of its bytecodes, without a signal.

A signal would end the program's system calls early. Where the main thread is inside one long call, what is
asked for waits until it returns.
"""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType
from typing import Any

__all__ = ["Obstacle", "SafePoint", "obstacle"]

# Code on the stack in whose middle nothing of ours may run: an import that we might need ourselves; the
# compiler, whose time is no step's; what runs compiled code or a backward function of Python's, since torch
# has a range of its own open meanwhile, and a recording must not end in one.
_IMPORTS = "<frozen importlib._bootstrap>"
_COMPILES = (
    "torch/_dynamo/convert_frame.py",
    "torch/_inductor/compile_fx.py",
    "torch/_functorch/_aot_autograd/graph_compile.py",
)
_RUNS = ("torch/_dynamo/", "torch/_functorch/", "torch/_inductor/", "torch/fx/", "torchinductor_")
_BACKWARD = "torch/autograd/function.py"
_MOMENT_S = 0.001
# A program may be inside one such call as long as it runs: then any moment outside the compiler has to do.
_PATIENCE_NS = 5_000_000_000


class Obstacle(Enum):
    """Why a moment does not suit."""

    IMPORT = "an import"
    COMPILER = "the compiler at work"
    RANGE = "a range of torch's own that is open"


class SafePoint:
    """Made in the main thread, once the program has imported ctypes; asked from any other.

    Args:
        work: called in the main thread. What it raises, as a handler of a signal that came meanwhile may,
            is raised in the program right after, since the interpreter drops it in the call itself.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        ctypes: Any = sys.modules["ctypes"]
        self._work = work
        self._main = _thread.get_ident()
        self._python = ctypes.pythonapi
        self._thread_number, self._object = ctypes.c_ulong, ctypes.py_object
        # Kept as long as this: the interpreter holds only its address.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)
        self.asked = False
        """Whether the main thread has not yet come to it."""
        self.refused = 0
        """How many moments in a row did not suit."""
        self._refused_since_ns = 0

    def ask(self) -> None:
        """Returns at once. If the moment does not suit, nothing is done: ask again."""
        if not self.asked:
            # Full where 32 others wait: then the next time.
            self.asked = self._python.Py_AddPendingCall(self._call, None) == 0

    def _run(self, nothing: object) -> int:
        try:
            # Another thread may have become the main one, by a fork.
            if _thread.get_ident() == self._main and self._suits(obstacle(sys._getframe())):
                self._work()
        except BaseException as error:
            _thread.start_new_thread(self._raise_in_main, (error,))
        finally:
            self.asked = False
        return 0

    def _suits(self, found: Obstacle | None) -> bool:
        if found is Obstacle.RANGE and self.refused:
            found = None if time.monotonic_ns() - self._refused_since_ns > _PATIENCE_NS else found
        if found is None:
            self.refused = 0
            return True
        if not self.refused or found is not Obstacle.RANGE:
            self._refused_since_ns = time.monotonic_ns()
        self.refused += 1
        return False

    def _raise_in_main(self, owed: BaseException) -> None:
        """Once the main thread has left our call: in it, this would be dropped again."""
        code = SafePoint._run.__code__
        while any(frame.f_code is code for frame in _stack(sys._current_frames().get(self._main))):
            time.sleep(_MOMENT_S)
        if isinstance(owed, KeyboardInterrupt):
            _thread.interrupt_main()
            return
        # Only a class can be raised from outside; this one's instance is what was raised.
        again = type(type(owed).__name__, (type(owed),), {"__new__": lambda cls, *given: owed})
        self._python.PyThreadState_SetAsyncExc(self._thread_number(self._main), self._object(again))


def obstacle(frame: FrameType | None) -> Obstacle | None:
    """What is under way in which nothing of ours may run."""
    found = None
    for one in _stack(frame):
        file = one.f_code.co_filename
        if file == _IMPORTS:
            return Obstacle.IMPORT
        if file.endswith(_COMPILES):
            return Obstacle.COMPILER
        if file.endswith(_BACKWARD) or any(part in file for part in _RUNS):
            found = Obstacle.RANGE
    return found


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
