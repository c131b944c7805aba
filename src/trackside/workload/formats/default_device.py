"""A file's `torch.set_default_device`, be it on import or in `setup`: in force while its own code runs.

torch keeps it as a mode that stays on and would run inside our own calls, like those that cheat.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from trackside.workload.formats.workload import Workload

__all__ = ["confine", "taken_off", "under"]

_CODE = ("call", "setup", "inputs", "reference", "work", "init_inputs")


def confine(workload: Workload) -> None:
    """Take off the default device that a file has left on, and put it on around its functions."""
    device = taken_off()
    if device is None or workload.default_device == device:
        return
    workload.default_device = device
    for name in _CODE:
        function = getattr(workload, name)
        if function is not None:
            setattr(workload, name, under(device, function))


def taken_off() -> torch.device | None:
    """Take off the default device, if there is one, and say which it was."""
    if not torch._C._len_torch_function_stack():
        return None
    device = torch.get_default_device()
    torch.set_default_device(None)
    # Something else may be on too; that is found after the first call.
    return None if torch._C._len_torch_function_stack() else device


def under(device: torch.device | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs with that default device, if any."""
    if device is None:
        return function

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        with device:
            return function(*arguments, **named)

    return run
