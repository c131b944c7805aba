"""Has the program's main thread do something between two of its bytecodes, without a signal.

A signal would end the program's system calls early. Where the main thread is inside one long call, what is
asked for waits until it returns.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["SafePoint"]

# Code on the stack in whose middle nothing of ours may run: an import that we might need ourselves, and the
# compiler, whose time is no step's.
_IMPORTS = "<frozen importlib._bootstrap>"
_COMPILES = ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py")


class SafePoint:
    """Made in the main thread, once the program has imported ctypes; asked from any other.

    Args:
        work: called in the main thread with nothing of the program running in it. What it raises is raised
            in the program, by `pay`, since the interpreter drops it where the call is made.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        ctypes: Any = sys.modules["ctypes"]
        self._work = work
        self._main = _thread.get_ident()
        self._python = ctypes.pythonapi
        self._thread_number, self._object = ctypes.c_ulong, ctypes.py_object
        # Kept as long as this: the interpreter holds only its address.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)
        self._owed: BaseException | None = None
        self.asked = False
        """Whether the main thread has not yet come to it."""

    def ask(self) -> None:
        """Returns at once. If the moment does not suit, nothing is done: ask again."""
        if not self.asked and self._owed is None:
            # Full where 32 others wait: then the next time.
            self.asked = self._python.Py_AddPendingCall(self._call, None) == 0

    def pay(self) -> None:
        """Raise in the main thread what a signal's handler raised while we had it: from another thread."""
        owed, self._owed = self._owed, None
        if owed is None:
            return
        if isinstance(owed, KeyboardInterrupt):
            _thread.interrupt_main()
            return
        # Only a class can be raised from outside; this one's instance is what was raised.
        again = type(type(owed).__name__, (type(owed),), {"__new__": lambda cls, *given: owed})
        self._python.PyThreadState_SetAsyncExc(self._thread_number(self._main), self._object(again))

    def _run(self, nothing: object) -> int:
        try:
            # Another thread may have become the main one, by a fork.
            if _thread.get_ident() == self._main and suits(sys._getframe()):
                self._work()
        except BaseException as error:
            self._owed = error
        finally:
            self.asked = False
        return 0


def suits(frame: FrameType | None) -> bool:
    """Whether neither an import nor a compilation is under way."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _IMPORTS or file.endswith(_COMPILES):
            return False
        frame = frame.f_back
    return True
