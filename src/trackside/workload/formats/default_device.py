"""A file's `torch.set_default_device`: in force while its own code runs, and nowhere else.

torch keeps it as a mode that stays on and would run inside our own calls, like those that cheat.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from trackside.workload.formats.workload import Workload

__all__ = ["confine"]

_CODE = ("call", "setup", "inputs", "reference", "work", "init_inputs")


def confine(workload: Workload) -> None:
    """Take off the default device that importing a file has left on, and put it on around its functions."""
    if not torch._C._len_torch_function_stack():
        return
    device = torch.get_default_device()
    torch.set_default_device(None)
    if torch._C._len_torch_function_stack():
        return  # something else is on too, and is found after the first call
    for name in _CODE:
        function = getattr(workload, name)
        if function is not None:
            setattr(workload, name, _on(device, function))


def _on(device: torch.device, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        with device:
            return function(*arguments, **named)

    return run
