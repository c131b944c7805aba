"""Which of the program's modules ran when. Runs in the program's process: standard library, and its torch.

No hooks: they would change what torch.compile does. While the log runs `torch.nn.Module.__call__` is ours,
as `torch.fx` does it; compiled code was made before and does not look there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["LEFT", "ModuleLog"]

LEFT = -1
"""In place of a module: the thread's innermost is left."""

_MOST_EVENTS = 2_000_000
# Under this name our `__call__` has the modules' own, and how much had been compiled when it took its place.
_MARK = "_trackside_original"


class ModuleLog:
    """Calls of modules, between `start` and `stop`.

    Args:
        clock: nanoseconds, that of the line log.
        most: events after which it stops listening.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns, most: int = _MOST_EVENTS) -> None:
        self._clock = clock
        self._most = most
        self._events: list[tuple[int, int, int]] = []
        self._modules: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._roots: dict[int, None] = {}
        self._depth: dict[int, int] = {}
        self._native: dict[int, int] = {}
        self._full = False

    def start(self) -> None:
        """From now on calls are logged; those that are running are not."""
        _listening[:] = [self]
        _listen(sys.modules["torch"])

    def stop(self) -> dict[str, Any]:
        """Put everything back, and tell what was seen, for JSON."""
        self._full = self._full or len(self._events) >= self._most
        _listening.clear()
        _listen_no_more(sys.modules["torch"])
        told = {
            "times": [event[0] for event in self._events],
            "threads": [event[1] for event in self._events],
            "modules": [event[2] for event in self._events],
            "known": self._named(),
            "full": self._full,
        }
        self._events, self._modules = [], []
        return told

    def roots(self) -> list[Any]:
        """The modules that the program itself has called, until `stop`."""
        return [self._modules[number] for number in self._roots]

    def enter(self, module: Any) -> bool:
        """A module is called; whether `leave` is to be called at its end."""
        if len(self._events) >= self._most:
            return False
        now, thread = self._clock(), threading.get_ident()
        number = self._numbers.get(id(module))
        if number is None:
            number = self._numbers[id(module)] = len(self._modules)
            # Kept until the end, so that no other gets its address.
            self._modules.append(module)
        depth = self._depth.get(thread, 0)
        if depth == 0:
            self._roots.setdefault(number)
            # Threads that come after others get their numbers again, but for the kernel's.
            self._native[thread] = threading.get_native_id()
        self._depth[thread] = depth + 1
        self._events.append((now, self._native[thread], number))
        return True

    def leave(self) -> None:
        now, thread = self._clock(), threading.get_ident()
        self._depth[thread] -= 1
        if self._events:
            self._events.append((now, self._native[thread], LEFT))

    def _named(self) -> list[dict[str, str]]:
        """Paths from the modules that the program itself calls; by the names that it has for them, if any."""
        names = _global_names()
        paths: dict[int, str] = {}
        for root in sorted(self.roots(), key=lambda one: -sum(1 for _ in one.modules())):
            begin = names.get(id(root), type(root).__name__)
            for path, module in root.named_modules():
                # torch.compile's shell around a module is no part of the model.
                inner = [part for part in path.split(".") if part and part != "_orig_mod"]
                paths.setdefault(id(module), ".".join([begin, *inner]))
        return [
            {"path": paths.get(id(module), type(module).__name__), "type": type(module).__name__}
            for module in self._modules
        ]


_listening: list[ModuleLog] = []
"""The log that runs, if one does."""


def _listen(torch: Any) -> None:
    """Put our `__call__` in the place of the modules', unless it is there from an earlier log."""
    base = torch.nn.Module
    original = base.__call__
    if hasattr(original, _MARK):
        return
    is_compiling = torch.compiler.is_compiling

    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        # First, and from the closure: what the compiler sees here it expects to stay.
        if is_compiling() or not _listening:
            return original(module, *args, **kwargs)
        log = _listening[0]
        if not log.enter(module):
            return original(module, *args, **kwargs)
        try:
            return original(module, *args, **kwargs)
        finally:
            log.leave()

    setattr(call, _MARK, (original, _graphs_compiled()))
    # Ours are not to be compiled with the program's.
    with suppress(AttributeError):
        for code in (call.__code__, ModuleLog.enter.__code__, ModuleLog.leave.__code__):
            torch._C._dynamo.eval_frame.skip_code(code)
    base.__call__ = call


def _listen_no_more(torch: Any) -> None:
    """Put the modules' own back, unless somebody put another in the place of ours, which calls ours.

    What was compiled meanwhile expects ours and would be compiled again without: then it stays, and does
    nothing.
    """
    base = torch.nn.Module
    original, compiled = getattr(base.__dict__.get("__call__"), _MARK, (None, 0))
    if original is not None and compiled == _graphs_compiled():
        base.__call__ = original


def _graphs_compiled() -> int:
    # None while it is being imported, maybe by another thread.
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters is not None else 0


def _global_names() -> dict[int, str]:
    """What the program calls its objects, the first name of each."""
    names: dict[int, str] = {}
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if not name.startswith("_"):
            names.setdefault(id(value), name)
    return names
