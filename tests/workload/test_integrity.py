"""What a candidate replaced or installed in its own process is reported."""

import builtins
import ctypes
import gc
import json
import subprocess
import sys
import time
import types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trackside.workload import calls, integrity, memory, tree, worker


@pytest.fixture
def watch() -> integrity.Watch:
    return integrity.Watch((worker, calls, memory, integrity, tree))


def test_an_untouched_process_has_nothing_replaced(watch: integrity.Watch) -> None:
    assert watch.replaced() == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (time, "perf_counter_ns"),
        (torch.Tensor, "clone"),
        (torch.Tensor, "data_ptr"),
        (torch.cuda.Event, "elapsed_time"),
        (torch, "allclose"),
        (worker, "_clock"),
        (worker, "_active_modes"),
        (memory, "_memmove"),
        (tree, "_data_ptr"),
        (calls, "_detach"),
        (memory.HostMemory, "copy"),
        (integrity, "hooks_installed"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_a_replaced_function_is_named(
    watch: integrity.Watch, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *a, **k: 0)
    assert any(found.endswith(name) for found in watch.replaced())


def test_swapped_code_inside_a_function_is_named(watch: integrity.Watch) -> None:
    function = memory.HostMemory.copy
    kept = function.__code__

    def lazy(self, target, source, size):
        return None

    try:
        function.__code__ = lazy.__code__
        assert "HostMemory.copy" in watch.replaced()
    finally:
        function.__code__ = kept


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_an_open_dispatch_mode_is_counted() -> None:
    assert integrity.active_modes() == 0
    with Nothing():
        assert integrity.active_modes() == 1
    assert integrity.active_modes() == 0


def test_an_open_function_mode_is_counted() -> None:
    with torch.overrides.TorchFunctionMode():
        assert integrity.active_modes() == 1


def test_interpreter_hooks_are_named() -> None:
    kept_trace, kept_profile = sys.gettrace(), sys.getprofile()
    try:
        sys.settrace(None)
        sys.setprofile(None)
        assert integrity.hooks_installed() == []
        sys.setprofile(lambda *a: None)
        assert "sys.setprofile" in integrity.hooks_installed()
        sys.setprofile(None)
        sys.settrace(lambda *a: None)
        found = integrity.hooks_installed()
        sys.settrace(None)
        assert "sys.settrace" in found
    finally:
        sys.settrace(kept_trace)
        sys.setprofile(kept_profile)


def test_a_garbage_collection_callback_is_named() -> None:
    def callback(*_: object) -> None:
        pass

    gc.callbacks.append(callback)
    try:
        assert "gc.callbacks" in integrity.hooks_installed()
    finally:
        gc.callbacks.remove(callback)


class Asked:
    """Tells when it is compared, hashed or taken for a truth: code that may run nowhere beside the clock."""

    asked = 0

    def __bool__(self) -> bool:
        Asked.asked += 1
        return False

    def __eq__(self, other: object) -> bool:
        Asked.asked += 1
        return True

    def __hash__(self) -> int:
        return hash("any")


def test_a_look_sees_what_was_replaced_and_asks_it_nothing(
    watch: integrity.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch.look()
    Asked.asked = 0
    with monkeypatch.context() as patch:
        patch.setattr(gc, "callbacks", Asked())
        patch.setitem(vars(builtins), "any", Asked())
        patch.setattr(worker, "tree", Asked())
        patch.setattr(worker, "_POISON", Asked())
        patch.setattr(memory.HostMemory, "copy", Asked())
        assert not watch.look()
    assert Asked.asked == 0
    wanted = {"gc.callbacks", "builtins.any", "HostMemory.copy"}
    assert watch.found == wanted | {f"{worker.__name__}.{name}" for name in ("tree", "_POISON")}
    assert watch.look()
    assert wanted <= set(watch.replaced())


def test_a_name_that_only_looks_like_a_builtin_is_seen_and_not_asked(watch: integrity.Watch) -> None:
    table, look = vars(builtins), watch.look
    kept = dict(table)
    try:
        del table["any"]
        table[Asked()] = kept["any"]
        Asked.asked = 0
        same = look()
        asked = Asked.asked
    finally:
        table.clear()
        table.update(kept)
    assert (same, asked) == (False, 0)
    assert "builtins.any" in watch.found


def test_how_ctypes_passes_arguments_on_is_looked_at(watch: integrity.Watch) -> None:
    for name, other in (("argtypes", None), ("restype", ctypes.c_long), ("errcheck", lambda *a: 0)):
        kept = getattr(memory._memmove, name, None)
        setattr(memory._memmove, name, other)
        try:
            assert not watch.look()
        finally:
            if name == "errcheck":
                del memory._memmove.errcheck
            else:
                setattr(memory._memmove, name, kept)
    assert watch.found == {"trackside.workload.memory._memmove"}


def test_a_module_of_another_class_is_seen(watch: integrity.Watch) -> None:
    class Lazy(types.ModuleType):
        pass

    tree.__class__ = Lazy
    try:
        assert not watch.look()
    finally:
        tree.__class__ = types.ModuleType
    assert watch.found == {tree.__name__}


def test_an_added_name_is_harmless_among_the_builtins_only(
    watch: integrity.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "display", print, raising=False)
    assert watch.look()
    monkeypatch.setattr(worker, "__warningregistry__", {}, raising=False)
    watch.look()
    assert (watch.found, watch.look()) == (set(), True)
    monkeypatch.setattr(worker, "any", lambda *a: True, raising=False)
    assert not watch.look()
    assert watch.found == {f"{worker.__name__}.any"}


def test_attributes_of_objects_that_are_held_are_looked_at(watch: integrity.Watch) -> None:
    copies = memory.HostMemory()
    watch.hold(memory=copies)
    assert watch.look_at_held()
    copies.copy = lambda *a: None  # type: ignore[method-assign]
    assert not watch.look_at_held()
    assert watch.found == {"memory.copy"}


def test_what_was_replaced_before_objects_are_held_is_still_found(
    watch: integrity.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "getattr", lambda *a: None)
    watch.hold(memory=memory.HostMemory())
    harmless = watch.look()
    monkeypatch.undo()
    assert (harmless, watch.found) == (False, {"builtins.getattr"})


def test_defaults_of_a_function_are_looked_at(watch: integrity.Watch) -> None:
    kept = memory.align.__defaults__
    memory.align.__defaults__ = (512,)
    try:
        assert not watch.look()
    finally:
        memory.align.__defaults__ = kept
    assert "trackside.workload.memory.align" in watch.found


def test_annotations_and_attributes_of_a_function_are_nobody_s_business(watch: integrity.Watch) -> None:
    memory.align.__annotations__ = dict(memory.align.__annotations__)
    vars(memory.align)["seen"] = True
    try:
        watch.look()
        assert (watch.look(), watch.found) == (True, set())
    finally:
        vars(memory.align).clear()


HOOKS_TRIED = """
import ctypes, gc, json, sys
from trackside.workload import integrity

def told(*event):
    heard.append(event)
    return 0

heard = []
{tried}
gc.get_referents(heard)
print(json.dumps([len(heard), integrity.refused(), integrity.hooks_installed()]))
# What is left to be told when the process ends is none of ours.
import os; sys.stdout.flush(); os._exit(0)
"""
A_C_HOOK = """
kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.py_object, ctypes.c_void_p)
hook = kind(told)
ctypes.pythonapi.PySys_AddAuditHook(hook, None)
"""
OTHER_CODE = """
own = next(f for f in gc.get_objects() if getattr(f, "__name__", "") == "_refuse")
for name, other in {"__code__": (lambda *event: told(*event)).__code__, "__defaults__": (told,) * 3}.items():
    try:
        setattr(own, name, other)
    except RuntimeError as error:
        assert "while trackside measures" in str(error)
"""
KEYS_THAT_ANSWER = """
class Key:
    def __hash__(self): return hash("__cantrace__")
    def __eq__(self, other): return bool(told(other))
own = next(f for f in gc.get_objects() if getattr(f, "__name__", "") == "_refuse")
vars(own)[Key()] = 1
heard.clear()
"""


def after(tried: str) -> object:
    """How many events a hook was told of, what was refused, and what is reported as installed."""
    script = HOOKS_TRIED.replace("{tried}", f"integrity.refuse_audit_hooks()\n{tried}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("tried", ["sys.addaudithook(told)", A_C_HOOK], ids=["python", "c"])
def test_an_audit_hook_is_refused_and_the_attempt_is_told(tried: str) -> None:
    assert after(tried) == [0, ["sys.addaudithook"], []]


def test_who_tries_no_audit_hook_is_not_said_to_have_tried() -> None:
    assert after("") == [0, [], []]


def test_the_refusing_hook_keeps_its_code_and_who_gives_it_other_code_is_named() -> None:
    assert after(OTHER_CODE) == [0, [], ["other code for the audit hook"]]


def test_attributes_of_the_refusing_hook_are_never_asked_for() -> None:
    assert after(KEYS_THAT_ANSWER) == [0, [], []]
