"""Whether what timing and reading rely on is still what this process started with.

The answer comes from the candidate's own process, so it can only add evidence: what decides is that
every timed output is checked elsewhere and that the judge keeps a clock of its own.

Code of the candidate's that runs between the clock and the copy of the outputs could finish its work there,
and then put back what called it. So `Watch.look` comes right after the clock, and none of what it does before
it knows the answer can be replaced: it calls C functions captured at import, and compares addresses.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Protocol

import torch

__all__ = ["Watch", "active_modes", "hooks_installed", "refuse_audit_hooks", "refused"]

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
_thread_hook = vars(threading).get
_dispatch_depth = torch._C._len_torch_dispatch_stack
_function_depth = torch._C._len_torch_function_stack
_callbacks = gc.callbacks
_tried: set[str] = set()
_MISSING = object()
_CFunction: Any = ctypes._CFuncPtr  # type: ignore[attr-defined]
# What Python itself adds to a module or class in its own time.
_ADDED_BY_PYTHON = frozenset({"__annotations__", "__annotations_cache__", "__warningregistry__"})
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
# What comes last among the things that are looked at may grow.
_BUILTINS: tuple[str, dict[str, Any]] = ("builtins", vars(builtins))
_END: tuple[str, dict[str, Any]] = ("", {"": None})


def active_modes() -> int:
    """Torch dispatch and function modes that are on; any of them could do work inside our own calls."""
    return int(_dispatch_depth()) + int(_function_depth())


def hooks_installed() -> list[str]:
    """Interpreter hooks that would run user code inside ours."""
    found = []
    if _gettrace() is not None:
        found.append("sys.settrace")
    if _getprofile() is not None or _thread_hook("_profile_hook") is not None:
        found.append("sys.setprofile")
    if _get_tool is not None and any(_get_tool(i) for i in range(6)):
        found.append("sys.monitoring")
    if _callbacks:
        found.append("gc.callbacks")
    if "object.__setattr__" in _tried:
        found.append("other code for the audit hook")
    return found


def refused() -> list[str]:
    """What was tried and came to nothing."""
    return ["sys.addaudithook"] if "sys.addaudithook" in _tried else []


def _refuse(
    event: str,
    args: tuple[Any, ...],
    itself: Any = None,
    tried: Callable[[str], None] = _tried.add,
    error: type[Exception] = RuntimeError,
) -> None:
    # Nothing here is looked up by a name that could be given another meaning; and whoever finds this function
    # and gives it other code, or other defaults, tells it so first.
    if event == "sys.addaudithook" or (event == "object.__setattr__" and args[0] is itself):
        tried(event)
        raise error("not while trackside measures: an audit hook would run inside its own code")


def refuse_audit_hooks() -> None:
    """From now on Python adds no audit hook to this process; `refused` tells whether somebody tried.

    One would be told of each step of a look, before that sees anything, and could do there what the timed
    call left undone. To try is no fault: torch.compile's lock files (filelock) add a hook on Python 3.12 and
    later, and do without where it is refused. Work that was left to a hook is never done, and missing in the
    outputs. Native code that calls PySys_AddAuditHook without holding the GIL is not refused: Python asks
    nobody then.
    """
    _refuse.__defaults__ = (_refuse, _tried.add, RuntimeError)
    # Python asks a hook for an attribute each time. A function has a dict of them, whose keys could answer in
    # code of their own; its bound `__call__` has none.
    hook: Any = _refuse
    sys.addaudithook(hook.__call__)


class Watch:
    """What our own code looks up and calls, as it was before user code was loaded.

    Args:
        near: modules whose code runs between the clock and the copy of the outputs; `look` is about these.
        others: further ones, which `replaced` looks at too.
    """

    def __init__(self, near: tuple[types.ModuleType, ...], others: tuple[types.ModuleType, ...] = ()) -> None:
        self._named = [(owner, name, getattr(owner, name, _MISSING)) for owner, name in _WATCHED]
        self.found: set[str] = set()
        """Names that meant something else when somebody looked, even if they were put right since."""
        self.look = self._sealed([*_insides(near), ("gc", vars(gc)), ("gc.callbacks", _callbacks), _BUILTINS])
        """Whether all is as it was; the names of what is not are added to `found`."""
        self.look_at_held = self.look_at()
        """The same about what was put on `hold`."""
        self._held: dict[str, Any] = {}
        self._look_at_others = self._sealed([*_insides(others), _END])

    def hold(self, **instances: Any) -> None:
        """From now on the attributes of these objects, which are new, are to stay what they are."""
        self._held |= {name: vars(item) for name, item in instances.items()}
        self.look_at_held = self.look_at(**self._held)

    def look_at(self, **owners: Any) -> Callable[[], bool]:
        """A look of its own at these alone: functions of ctypes', or dicts of attributes."""
        return self._sealed([*owners.items(), _END])

    def replaced(self) -> list[str]:
        """Names that no longer mean what they meant, or did not when somebody looked."""
        self.look()
        self.look_at_held()
        self._look_at_others()
        named = [
            f"{getattr(o, '__name__', o)}.{name}"
            for o, name, value in self._named
            if getattr(o, name, _MISSING) is not value and getattr(o, name, _MISSING) != value
        ]
        return sorted({*self.found, *named})

    def _sealed(self, owners: list[tuple[str, Any]]) -> Callable[[], bool]:
        looks = _looks(owners, self.found)
        next(looks)
        # A generator, and not a function: nobody can exchange the code of one that is under way.
        return looks.__next__


def _insides(modules: tuple[types.ModuleType, ...]) -> list[tuple[str, Any]]:
    """Modules with all that decides what their code does, each thing with a name for it."""
    found: list[tuple[str, Any]] = []
    for module in modules:
        tables = [(module.__name__, vars(module))]
        for kind in vars(module).values():
            # Not protocols: nothing of theirs is ever called.
            if (
                isinstance(kind, type)
                and kind.__module__ == module.__name__
                and Protocol not in kind.__bases__
            ):
                # The proxy that `vars` gives refers to the class's own dict, and to nothing else.
                tables.append((kind.__name__, gc.get_referents(vars(kind))[0]))
        # A module refers to its dict, and to its class where that is not Python's own any more.
        found += [(module.__name__, module), *tables]
        for label, table in tables:
            for name, value in table.items():
                function = getattr(value, "fget" if type(value) is property else "__func__", value)
                # One of ctypes' refers to what says how its arguments are passed on.
                mine = isinstance(function, types.FunctionType) and function.__module__ == module.__name__
                if mine or isinstance(function, _CFunction):
                    closure = getattr(function, "__closure__", None) or ()
                    named = getattr(function, "__kwdefaults__", None)
                    found += [(f"{label}.{name}", part) for part in (function, *closure, named) if part]
    return found


def _looks(owners: list[tuple[str, Any]], found: set[str]) -> Iterator[bool]:
    """Tell again and again whether all that these things hold is the same as at first.

    That is what they refer to, the names in dicts, and the code of functions. Every function here is a local
    name, and no object is asked for anything: what it refers to is read as the garbage collector reads it. Of
    a dict whose keys are all plain strings that is its values, so that a key of another kind shows as well.
    Then addresses are compared, as bytes.

    Args:
        owners: each with its name; names may be added to the last one, which must be a dict.
        found: the names of what is not the same are added to it.
    """
    kinds, count, address, refer, joined = type, len, id, gc.get_referents, chain.from_iterable
    each, every, same_object, fixed, text, items = map, all, is_, tuple, str, dict.items
    code_of, add, added_by_python = attrgetter("__code__"), found.add, _ADDED_BY_PYTHON
    # Of all that a function refers to; its annotations and attributes are made when somebody asks for them.
    defaults_of, function_kind = attrgetter("__defaults__", "__kwdefaults__"), types.FunctionType
    functions = [(label, f, f.__code__) for label, f in owners if kinds(f) is types.FunctionType]
    # All that a function refers to would double the cost; without defaults, only its code can be exchanged.
    plain = {id(f) for _, f, _ in functions if f.__defaults__ is None and f.__kwdefaults__ is None}
    kept = [
        (
            label,
            owner,
            dict(owner) if kinds(owner) is dict else None,
            defaults_of(owner) if kinds(owner) is function_kind else refer(owner),
        )
        for label, owner in owners
        if id(owner) not in plain
    ]
    things = fixed([owner for _, owner, _, _ in kept])
    # Where each function points to its code. To ask it would be an audit event, of 100 ns each with a hook;
    # and a view, unlike what it is of, cannot be given another class.
    codes, read = fixed([_pointer_to_code(f) for _, f, _ in functions]), b"".join
    tables = fixed([owner for owner in things if kinds(owner) is dict])
    last = things[-1]
    # A tuple's pointers follow its header.
    header = tuple.__basicsize__
    harmless = True
    while True:
        if harmless:
            first = fixed(refer(*things)), fixed(joined(tables))
            shapes = [ctypes.c_char * (count(held) * _POINTER_BYTES) for held in first]
            (n_values, n_names), (values_at, names_at) = (
                each(count, first),
                [shape.from_address for shape in shapes],
            )
            raw_values, raw_names = [shape.raw.__get__ for shape in shapes]  # type: ignore[attr-defined]
            old_values = raw_values(values_at(address(first[0]) + header))
            old_names = raw_names(names_at(address(first[1]) + header))
            old_codes = read(codes)
        yield harmless
        values, names = fixed(refer(*things)), fixed(joined(tables))
        while (
            count(values) >= n_values
            and count(names) >= n_names
            and raw_values(values_at(address(values) + header)) == old_values
            and raw_names(names_at(address(names) + header)) == old_names
            and read(codes) == old_codes
        ):
            yield True
            values, names = fixed(refer(*things)), fixed(joined(tables))
        harmless = True
        for label, function, code in functions:
            if code_of(function) is not code:
                harmless = False
                add(label)
        for label, owner, entries, insides in kept:
            if entries is None:
                held = defaults_of(owner) if kinds(owner) is function_kind else refer(owner)
                if count(held) != count(insides) or not every(each(same_object, held, insides)):
                    harmless = False
                    add(label)
                continue
            # A dict of our own: to look a name up in theirs could ask a key that is no plain string.
            now = {}
            for name, value in items(owner):
                if kinds(name) is text:
                    now[name] = value
                else:
                    harmless = False
                    add(f"{label} (a name that is no string)")
            for name, value in items(entries):
                if name not in now or now[name] is not value:
                    harmless = False
                    add(f"{label}.{name}")
            # An added name of our modules' comes before a builtin, one of an object's before its class's.
            for name in now:
                if owner is not last and name not in entries and name not in added_by_python:
                    harmless = False
                    add(f"{label}.{name}")


def _pointer_to_code(function: types.FunctionType) -> memoryview:
    """The bytes of a function object that say where its code is."""
    insides = ctypes.string_at(id(function), types.FunctionType.__basicsize__)
    at = insides.index(id(function.__code__).to_bytes(_POINTER_BYTES, sys.byteorder))
    return memoryview((ctypes.c_char * _POINTER_BYTES).from_address(id(function) + at))
