"""The fastest matrix product that this process reaches on its device: what arithmetic can be done at most."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch

__all__ = ["fastest_matmul"]

# Large enough to fill the machine; on a CPU also one that a few cores finish in milliseconds.
_SIZES = {"cpu": (512, 2048), "cuda": (8192,)}
# Seconds for each type and size, after which the next is tried.
_SECONDS = 0.2


def fastest_matmul(device: str) -> tuple[float, str]:
    """FLOP/s of a square product in the type that is fastest here, and that type's name."""
    kind = torch.device(device).type
    best, name = 0.0, ""
    for dtype, size in itertools.product((torch.float32, torch.bfloat16, torch.float8_e4m3fn), _SIZES[kind]):
        product = _product(dtype, device, size)
        if product is None:
            continue
        rate = 2 * size**3 / _shortest(product, device)
        if rate > best:
            best, name = rate, str(dtype).removeprefix("torch.")
    return best, name


def _product(dtype: torch.dtype, device: str, size: int) -> Callable[[], torch.Tensor] | None:
    # Random data: zeros draw less power, and a product of zeros is faster than any real one.
    g = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, generator=g, device=device).to(dtype) for _ in range(2))
    if dtype != torch.float8_e4m3fn:
        return lambda: a @ b
    if device == "cpu" or torch.cuda.get_device_capability(device) < (8, 9):
        return None
    one = torch.ones((), dtype=torch.float32, device=device)
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _shortest(call: Callable[[], object], device: str) -> float:
    """Seconds of the shortest of several calls, the first aside."""

    def once() -> float:
        _synchronize(device)
        began = time.perf_counter()
        call()
        _synchronize(device)
        return time.perf_counter() - began

    times = [once(), once()][1:]
    deadline = time.perf_counter() + _SECONDS
    while time.perf_counter() < deadline:
        times.append(once())
    return min(times)


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)
