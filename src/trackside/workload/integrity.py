"""Whether the functions that timing and reading rely on are still the ones this process started with.

The answer comes from the candidate's own process, so it can only add evidence: what decides is that
every timed output is checked elsewhere and that the judge keeps a clock of its own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time
import types
from typing import Any

import torch

__all__ = ["Watch", "active_modes", "hooks_installed"]

_WATCHED: tuple[tuple[Any, str], ...] = (
    *(
        (time, name)
        for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "thread_time_ns")
    ),
    *((torch, name) for name in ("allclose", "equal", "empty_strided", "as_strided", "frombuffer")),
    *(
        (torch.Tensor, name)
        for name in (
            "clone",
            "copy_",
            "contiguous",
            "detach",
            "data_ptr",
            "stride",
            "size",
            "cpu",
            "untyped_storage",
            "element_size",
            "__torch_function__",
        )
    ),
    *((torch.UntypedStorage, name) for name in ("data_ptr", "nbytes")),
    *((torch.cuda, name) for name in ("synchronize", "Event", "Stream", "current_stream", "stream")),
    *((torch.cuda.Event, name) for name in ("elapsed_time", "record", "synchronize", "query")),
    (torch.cuda.Stream, "synchronize"),
    (json, "dumps"),
    (json, "loads"),
    (ctypes, "CDLL"),
    (gc, "collect"),
)
# Captured: a replaced one would run user code after the clock was read.
_gettrace, _getprofile = sys.gettrace, sys.getprofile
_get_tool = getattr(getattr(sys, "monitoring", None), "get_tool", None)
_dispatch_depth = torch._C._len_torch_dispatch_stack
_function_depth = torch._C._len_torch_function_stack
_MISSING = object()


def active_modes() -> int:
    """Torch dispatch and function modes that are on; any of them could do work inside our own calls."""
    return int(_dispatch_depth()) + int(_function_depth())


def hooks_installed() -> list[str]:
    """Interpreter hooks that would run user code inside ours."""
    found = []
    if _gettrace() is not None:
        found.append("sys.settrace")
    if _getprofile() is not None or getattr(threading, "_profile_hook", None) is not None:
        found.append("sys.setprofile")
    if _get_tool is not None and any(_get_tool(i) for i in range(6)):
        found.append("sys.monitoring")
    if gc.callbacks:
        found.append("gc.callbacks")
    return found


class Watch:
    """What the watched names and our own functions were before user code was loaded."""

    def __init__(self, modules: tuple[types.ModuleType, ...]) -> None:
        self._named = [(owner, name, getattr(owner, name, _MISSING)) for owner, name in _WATCHED]
        self._codes: list[tuple[str, Any, Any]] = []
        for module in modules:
            holders: tuple[Any, ...] = (
                module,
                *(
                    v
                    for v in vars(module).values()
                    if isinstance(v, type) and v.__module__ == module.__name__
                ),
            )
            for holder in holders:
                for name, value in list(vars(holder).items()):
                    function = getattr(value, "__func__", value)
                    if callable(function) and not isinstance(value, type):
                        code = getattr(function, "__code__", None)
                        self._codes.append((f"{holder.__name__}.{name}", (holder, name, value), code))

    def replaced(self) -> list[str]:
        """Names that no longer mean what they meant."""
        changed = [
            f"{getattr(o, '__name__', o)}.{name}"
            for o, name, value in self._named
            if getattr(o, name, _MISSING) is not value and getattr(o, name, _MISSING) != value
        ]
        for label, (holder, name, value), code in self._codes:
            now = vars(holder).get(name, _MISSING)
            function = getattr(now, "__func__", now)
            if now is not value or (code is not None and getattr(function, "__code__", None) is not code):
                changed.append(label)
        return changed
