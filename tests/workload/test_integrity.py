"""What a candidate replaced or installed in its own process is reported."""

import gc
import sys
import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trackside.workload import integrity, memory, tree, worker


@pytest.fixture
def watch() -> integrity.Watch:
    return integrity.Watch((worker, memory, integrity, tree))


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
        (worker, "_detach"),
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
