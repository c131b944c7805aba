"""Has the program's main thread do something between two of its bytecodes, without a signal.

A signal would end the program's system calls early. Where the main thread is inside one long call, what is
asked for waits until it returns.
"""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ["SafePoint"]

# Code on the stack in whose middle nothing of ours may run: an import that we might need ourselves, and the
# compiler, whose time is no step's.
_IMPORTS = "<frozen importlib._bootstrap>"
_COMPILES = ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py")
_MOMENT_S = 0.001


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

    def ask(self) -> None:
        """Returns at once. If the moment does not suit, nothing is done: ask again."""
        if not self.asked:
            # Full where 32 others wait: then the next time.
            self.asked = self._python.Py_AddPendingCall(self._call, None) == 0

    def _run(self, nothing: object) -> int:
        try:
            # Another thread may have become the main one, by a fork.
            if _thread.get_ident() == self._main and suits(sys._getframe()):
                self._work()
        except BaseException as error:
            _thread.start_new_thread(self._raise_in_main, (error,))
        finally:
            self.asked = False
        return 0

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


def suits(frame: FrameType | None) -> bool:
    """Whether neither an import nor a compilation is under way."""
    files = (one.f_code.co_filename for one in _stack(frame))
    return not any(file == _IMPORTS or file.endswith(_COMPILES) for file in files)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
