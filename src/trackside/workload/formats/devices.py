"""Seeds, and files that ask for CUDA by name on a machine or a run without it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["cuda_means", "moved", "replaced", "seed_all"]

_NUMPY_SEEDS = 2**32


def seed_all(seed: int) -> None:
    """Seed every global generator that user code may draw from without saying so."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % _NUMPY_SEEDS)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` until the block ends."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def cuda_means(device: str) -> Iterator[None]:
    """Inside, `device="cuda"`, `.cuda()` and `torch.Generator("cuda")` mean `device`.

    For a CUDA device that is torch's own notion of the current device; on a CPU the calls are redirected.
    For untimed code only: a function mode costs time on each call.
    """
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            yield
        return
    with ExitStack() as stack:
        stack.enter_context(replaced(torch, "Generator", _CpuGenerator))
        stack.enter_context(replaced(torch.cuda, "synchronize", _nothing))
        stack.enter_context(_CudaAsCpu())
        yield


def _nothing(device: Any = None) -> None:
    return None


class _CpuGenerator(torch.Generator):  # type: ignore[misc,unused-ignore]
    def __new__(cls, device: Any = "cpu") -> _CpuGenerator:
        made: _CpuGenerator = torch._C.Generator.__new__(cls, device=_redirected(device))  # type: ignore[call-arg,unused-ignore]
        return made


class _CudaAsCpu(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
    """Sends factory calls and moves that name a CUDA device to the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        given = {name: _redirected(value) for name, value in (kwargs or {}).items()}
        return func(*(_redirected(value) for value in args), **given)


def _redirected(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if type(value) is str and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def moved(value: Any, device: str, memo: dict[int, Any] | None = None) -> Any:
    """The same nested value with its tensors on `device`; a tensor that occurs twice stays one tensor."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            memo[id(value)] = value.to(device)
        return memo[id(value)]
    if type(value) in (tuple, list):
        return type(value)(moved(item, device, memo) for item in value)
    if type(value) is dict:
        return {key: moved(item, device, memo) for key, item in value.items()}
    return value
