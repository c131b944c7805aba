"""Measuring program: this process's CPUs: memory, matrix products, and what Python and torch cost a call.

Takes a JSON object as its argument (`seconds` for each measurement, `bytes` of memory, the `parent`'s process
number), prints lines of JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from trackside.machine.ceiling_suite.child import Speed, any_torch, arguments, measure_all, repeat, say

__all__: list[str] = []

_MATRIX = 2048
_CALLS = 20_000
_OPERATORS = 2_000


def _speeds(seconds: float, size: int) -> Iterator[Speed]:
    told = f"{size >> 20} MiB on all threads"
    yield Speed(
        "cpu.memory.read", "memory read", "B/s", f"sum of {told}", partial(_memory, "read", size, seconds)
    )
    yield Speed(
        "cpu.memory.write", "memory write", "B/s", f"fill of {told}", partial(_memory, "write", size, seconds)
    )
    yield Speed(
        "cpu.memory.copy",
        "memory copy",
        "B/s",
        f"copy of {told}, reads and writes together",
        partial(_memory, "copy", size, seconds),
    )
    yield Speed(
        "cpu.memory.copy.one-thread",
        "memcpy, one thread",
        "B/s",
        f"copy of {size >> 20} MiB, reads and writes together",
        partial(_memcpy, size, seconds),
    )
    for name in ("fp32", "bf16"):
        yield Speed(
            f"cpu.gemm.{name}",
            f"matmul {name}",
            "FLOP/s",
            f"torch.mm, {_MATRIX}³, all threads",
            partial(_matmul, name, seconds),
        )
    yield Speed(
        "cpu.python.call",
        "Python call",
        "ns",
        "a function of one argument, loop included",
        partial(_python_call, seconds),
    )
    yield Speed(
        "cpu.torch.operator",
        "torch operator",
        "µs",
        "an in-place add to one element",
        partial(_operator, seconds),
    )


def _seconds_of(operation: Callable[[], object], times: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(times):
        operation()
    return (time.perf_counter() - began) / times


def _memory(way: str, size: int, seconds: float) -> list[float]:
    torch = any_torch()
    source = torch.rand(size // 4)
    target = torch.empty_like(source)
    operation, amount = {
        "read": (source.sum, size),
        "write": (lambda: target.fill_(1.5), size),
        "copy": (lambda: target.copy_(source), 2 * size),
    }[way]
    return [amount / t for t in repeat(lambda: _seconds_of(operation), seconds)]


def _memcpy(size: int, seconds: float) -> list[float]:
    # Two views of bytes: their assignment is libc's memcpy, in this thread.
    source, target = memoryview(bytearray(b"\x5a" * size)), memoryview(bytearray(b"\xa5" * size))

    def copy() -> None:
        target[:] = source

    return [2 * size / t for t in repeat(lambda: _seconds_of(copy), seconds)]


def _matmul(name: str, seconds: float) -> list[float]:
    torch = any_torch()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[name]
    a, b = (torch.randn(_MATRIX, _MATRIX).to(dtype) for _ in range(2))
    return [2.0 * _MATRIX**3 / t for t in repeat(lambda: _seconds_of(lambda: torch.mm(a, b)), seconds)]


def _python_call(seconds: float) -> list[float]:
    def nothing(value: int) -> int:
        return value

    def loop() -> None:
        for i in range(_CALLS):
            nothing(i)

    return [t / _CALLS * 1e9 for t in repeat(lambda: _seconds_of(loop), seconds)]


def _operator(seconds: float) -> list[float]:
    torch = any_torch()
    one = torch.zeros(1)
    return [t * 1e6 for t in repeat(lambda: _seconds_of(lambda: one.add_(1.0), _OPERATORS), seconds)]


def main() -> None:
    asked = arguments()
    measure_all(_speeds(float(str(asked["seconds"])), int(str(asked["bytes"]))))
    say(done=True)


if __name__ == "__main__":
    main()
