"""Measuring program: one GPU's memory, arithmetic, copies and launches, through torch.

Takes a JSON object as its argument (`index`, `seconds` for each measurement, `sustained` for the long run,
the `parent`'s process number), prints lines of JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from trackside.machine.ceiling_suite.child import Speed, arguments, cuda_torch, measure_all, repeat, say

__all__: list[str] = []

# Far beyond any L2, and short enough for many repetitions.
_MEMORY_BYTES = 4 << 30
_MATRIX = 8192
# Operations between two events: long against their resolution of half a microsecond.
_LAUNCHES, _GRAPH_KERNELS = 1000, 100
_COPY_BYTES = 256 << 20
# What the host has a share in is measured so often, with the device's own speeds between.
_ROUNDS = 3
_IN_ROUNDS = f"in {_ROUNDS} rounds"
_ATTENTION = (8, 32, 4096, 128)


class _Device:
    """The GPU, random data on it, and events."""

    def __init__(self, index: int, seconds: float) -> None:
        self.name = f"cuda:{index}"
        torch.cuda.set_device(index)
        self.seconds = seconds
        self.generator = torch.Generator(self.name).manual_seed(20_26)
        free, _ = torch.cuda.mem_get_info()
        self.bytes = min(_MEMORY_BYTES, free // 4) & ~0xFFFF
        self.l2 = int(torch.cuda.get_device_properties(index).L2_cache_size)

    def random(self, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Random, since zeros and repeated values draw less power and run at higher clocks."""
        return torch.randn(count, generator=self.generator, device=self.name).to(dtype)

    def seconds_of(self, operation: Callable[[], object], batch: int) -> float:
        """Seconds of one operation on the device, between two events, launches hidden by the one before."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        operation()
        start.record()
        for _ in range(batch):
            operation()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / batch

    def rates(self, amount: float, operation: Callable[[], object], batch: int = 4) -> list[float]:
        """Amounts a second."""
        return [amount / t for t in repeat(lambda: self.seconds_of(operation, batch), self.seconds)]


def _speeds(device: _Device) -> Iterator[Speed]:
    """The device's own, and between them, in rounds, what is the host's as much.

    A host that others share was twice as fast from one half minute to the next: a round alone would not tell.
    """
    hosts_share = _HostsShare(device)
    yield from _memory(device)
    yield from hosts_share.speeds()
    yield from _matrices(device)
    yield from hosts_share.speeds()
    yield Speed(
        "gpu.attention.bf16",
        "attention bf16",
        "FLOP/s",
        f"scaled_dot_product_attention, {_ATTENTION} (batch, heads, tokens, head), no mask, forward",
        partial(_attention, device),
    )
    yield from hosts_share.pinned_copies()
    yield from hosts_share.speeds()
    yield from _other_gpus(device)


def _memory(device: _Device) -> Iterator[Speed]:
    told = f"{device.bytes >> 20} MiB"
    source = device.random(device.bytes // 4)
    read, method = _reading(source)
    yield Speed(
        "gpu.memory.read",
        "memory read",
        "B/s",
        f"{told} of random float32, {method}",
        partial(device.rates, device.bytes, read),
    )
    yield Speed("gpu.memory.write", "memory write", "B/s", f"fill of {told}", partial(_write, device))
    yield Speed(
        "gpu.memory.copy",
        "memory copy",
        "B/s",
        f"copy of {told} of random float32, reads and writes together",
        partial(_copy, device, source),
    )
    yield Speed(
        "gpu.l2.copy",
        "L2 copy",
        "B/s",
        f"copy of {device.l2 // 4 >> 10} KiB, reads and writes together, from a CUDA graph",
        partial(_copy_in_l2, device),
    )


def _reading(source: torch.Tensor) -> tuple[Callable[[], object], str]:
    """What reads a tensor the fastest, and what that is."""
    try:
        from trackside.machine.ceiling_suite.read_kernel import READ_METHOD, reader

        read = reader(source)
        read()
    except Exception as error:  # No Triton, or no C compiler for it: its own kinds of errors.
        why = f"{type(error).__name__} of Triton"
        return source.view(torch.float64).sum, f"summed by torch as float64 ({why})"
    return read, READ_METHOD


def _write(device: _Device) -> list[float]:
    target = torch.empty(device.bytes // 4, device=device.name)
    return device.rates(device.bytes, lambda: target.fill_(1.5))


def _copy(device: _Device, source: torch.Tensor) -> list[float]:
    target = torch.empty_like(source)
    return device.rates(2 * device.bytes, lambda: target.copy_(source))


def _copy_in_l2(device: _Device) -> list[float]:
    # Source and target together in half of the L2, often enough that launches do not count.
    size = device.l2 // 4 & ~0xFFFF
    if not size:
        raise NotImplementedError("the driver does not tell the size of the L2")
    source = device.random(size // 4)
    target = torch.empty_like(source)
    return _graph_rates(device, 2 * size, lambda: target.copy_(source))


def _graph_rates(device: _Device, amount: float, operation: Callable[[], object]) -> list[float]:
    graph = _captured(operation, _GRAPH_KERNELS)
    return [
        amount * _GRAPH_KERNELS / t
        for t in repeat(lambda: device.seconds_of(graph.replay, 4), device.seconds)
    ]


def _captured(operation: Callable[[], object], times: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operation()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            operation()
    return graph


def _matrices(device: _Device) -> Iterator[Speed]:
    flops = 2.0 * _MATRIX**3
    size = f"{_MATRIX}³, random normal data"
    plain: list[tuple[str, torch.dtype, bool]] = [
        ("fp64", torch.float64, False),
        ("fp32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bf16", torch.bfloat16, False),
        ("fp16", torch.float16, False),
    ]
    for name, dtype, tf32 in plain:
        yield Speed(
            f"gpu.gemm.{name}",
            f"matmul {name}",
            "FLOP/s",
            f"torch.mm, {size}",
            partial(_matmul, device, flops, dtype, tf32),
        )
    yield Speed(
        "gpu.gemm.fp8",
        "matmul fp8",
        "FLOP/s",
        f"torch._scaled_mm of e4m3, fast accumulation, {size}",
        partial(_fp8, device, flops),
    )
    yield Speed(
        "gpu.gemm.int8",
        "matmul int8",
        "FLOP/s",
        f"torch._int_mm, {_MATRIX}³, random integers",
        partial(_int8, device, flops),
    )


def _pair(device: _Device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    both = [device.random(_MATRIX * _MATRIX).reshape(_MATRIX, _MATRIX) for _ in range(2)]
    return both[0].to(dtype), both[1].to(dtype)


def _matmul(device: _Device, flops: float, dtype: torch.dtype, tf32: bool) -> list[float]:
    a, b = _pair(device, dtype)
    out = torch.empty_like(a)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return device.rates(flops, lambda: torch.mm(a, b, out=out))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _fp8(device: _Device, flops: float) -> list[float]:
    if torch.cuda.get_device_capability() < (8, 9):
        raise NotImplementedError(
            "this GPU's tensor cores have no fp8 (they do from compute capability 8.9 on)"
        )
    a, b = _pair(device, torch.float8_e4m3fn)
    scale = torch.ones((), device=device.name)
    columns = b.t().contiguous().t()
    return device.rates(
        flops,
        lambda: torch._scaled_mm(
            a, columns, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
        ),
    )


def _int8(device: _Device, flops: float) -> list[float]:
    shape = (_MATRIX, _MATRIX)
    a, b = (
        torch.randint(-128, 128, shape, generator=device.generator, device=device.name, dtype=torch.int8)
        for _ in range(2)
    )
    columns = b.t().contiguous().t()
    return device.rates(flops, lambda: torch._int_mm(a, columns))


def _attention(device: _Device) -> list[float]:
    batch, heads, tokens, size = _ATTENTION
    q, k, v = (
        device.random(batch * heads * tokens * size, torch.bfloat16).reshape(_ATTENTION) for _ in range(3)
    )
    flops = 4.0 * batch * heads * tokens**2 * size
    return device.rates(flops, lambda: F.scaled_dot_product_attention(q, k, v))


class _HostsShare:
    """Copies between host and device, launches, allocations."""

    def __init__(self, device: _Device) -> None:
        self.device = device
        self.seconds = device.seconds / _ROUNDS
        self.there = device.random(_COPY_BYTES // 4)
        self.pageable = self.there.cpu()
        self.one = torch.zeros(1, device=device.name)
        self.graph = _captured(self.add, _GRAPH_KERNELS)

    def add(self) -> object:
        return self.one.add_(1.0)

    def pinned_copies(self) -> Iterator[Speed]:
        there, pinned = self.there, self.pageable.pin_memory()
        ways: dict[str, Callable[[], object]] = {
            "host to device": lambda: there.copy_(pinned, non_blocking=True),
            "device to host": lambda: pinned.copy_(there, non_blocking=True),
        }
        for way, copy in ways.items():
            yield Speed(
                f"gpu.copy.{way.replace(' ', '-')}.pinned",
                f"{way}, pinned",
                "B/s",
                f"{_COPY_BYTES >> 20} MiB, events",
                partial(self.device.rates, _COPY_BYTES, copy),
            )

    def speeds(self) -> Iterator[Speed]:
        yield from self._pageable_copies()
        yield from self._launches()
        yield from self._allocations()

    def _host(self, operation: Callable[[], object], times: int) -> list[float]:
        """Microseconds of the host's for one of so many in a row."""

        def once() -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(times):
                operation()
            taken = time.perf_counter() - began
            torch.cuda.synchronize()
            return taken / times * 1e6

        return repeat(once, self.seconds)

    def _pageable_copies(self) -> Iterator[Speed]:
        ways: dict[str, Callable[[], object]] = {
            "host to device": lambda: self.there.copy_(self.pageable),
            "device to host": lambda: self.pageable.copy_(self.there),
        }
        for way, copy in ways.items():
            yield Speed(
                f"gpu.copy.{way.replace(' ', '-')}.pageable",
                f"{way}, pageable",
                "B/s",
                f"{_COPY_BYTES >> 20} MiB, host's clock with synchronisation, {_IN_ROUNDS}",
                partial(self._waited, copy),
            )

    def _waited(self, copy: Callable[[], object]) -> list[float]:
        def once() -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            copy()
            torch.cuda.synchronize()
            return time.perf_counter() - began

        return [_COPY_BYTES / t for t in repeat(once, self.seconds)]

    def _launches(self) -> Iterator[Speed]:
        def round_trip() -> None:
            self.add()
            torch.cuda.synchronize()

        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Fewer than the queue holds, or the host would wait for the device.
        rows: list[tuple[str, str, str, Callable[[], object], int]] = [
            ("launch.operator", "operator launch", "one small in-place add, 500 in a row", self.add, 500),
            ("launch.and-wait", "launch and wait", "one small add and a synchronisation", round_trip, 50),
            (
                "launch.graph",
                "graph launch",
                f"launching a CUDA graph of {_GRAPH_KERNELS} small kernels",
                self.graph.replay,
                5,
            ),
            ("event.record", "event record", "one of 500 in a row", event.record, 500),
            (
                "synchronise.idle",
                "synchronise an idle device",
                "one of 100 in a row",
                torch.cuda.synchronize,
                100,
            ),
        ]
        for name, title, what, operation, times in rows:
            yield Speed(
                f"gpu.{name}",
                title,
                "µs",
                f"host's time of {what}, {_IN_ROUNDS}",
                partial(self._host, operation, times),
            )
        yield Speed(
            "gpu.kernel.in-graph",
            "kernel in a graph",
            "µs",
            f"device's time of one of {_GRAPH_KERNELS} dependent small kernels in a CUDA graph",
            self._in_graph,
        )

    def _in_graph(self) -> list[float]:
        taken = repeat(lambda: self.device.seconds_of(self.graph.replay, 4), self.seconds)
        return [t / _GRAPH_KERNELS * 1e6 for t in taken]

    def _allocations(self) -> Iterator[Speed]:
        def cached() -> object:
            return torch.empty(1 << 20, dtype=torch.uint8, device=self.device.name)

        yield Speed(
            "gpu.allocate.cached",
            "allocation, cached",
            "µs",
            f"torch.empty of 1 MiB that the caching allocator has, {_IN_ROUNDS}",
            partial(self._host, cached, 500),
        )
        yield Speed(
            "gpu.allocate.driver",
            "allocation, from the driver",
            "µs",
            f"{_COPY_BYTES >> 20} MiB that the caching allocator has not, {_IN_ROUNDS}",
            self._from_the_driver,
        )

    def _from_the_driver(self) -> list[float]:
        def once() -> float:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            before = torch.cuda.memory_reserved()
            began = time.perf_counter()
            held = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=self.device.name)
            taken = (time.perf_counter() - began) * 1e6
            if torch.cuda.memory_reserved() - before < held.numel():
                raise NotImplementedError("the caching allocator had that much and would not give it back")
            return taken

        return repeat(once, self.seconds)


def _other_gpus(device: _Device) -> Iterator[Speed]:
    count = torch.cuda.device_count()
    index = torch.cuda.current_device()
    for other in range(count):
        if other != index:
            yield Speed(
                f"gpu.copy.to-gpu.{other}",
                f"copy to cuda:{other}",
                "B/s",
                "256 MiB, peer to peer where the driver allows it",
                partial(_peer, device, other),
            )
    if count > 1:
        yield Speed(
            "gpu.all-reduce",
            "all-reduce",
            "B/s",
            f"NCCL over {count} GPUs, 256 MiB each; bus bandwidth: 2 (n - 1) / n times what each holds",
            partial(_all_reduce, device, count),
        )
    else:
        say(skipped="gpu.all-reduce", title="peer copies and all-reduce", why="there is one GPU")


def _peer(device: _Device, other: int) -> list[float]:
    source = device.random(_COPY_BYTES // 4)
    target = torch.empty_like(source, device=f"cuda:{other}")
    return device.rates(_COPY_BYTES, lambda: target.copy_(source, non_blocking=True))


def _all_reduce(device: _Device, count: int) -> list[float]:
    from torch.cuda import nccl

    held: list[Any] = [torch.ones(_COPY_BYTES // 4, device=f"cuda:{i}") for i in range(count)]

    def once() -> float:
        for i in range(count):
            torch.cuda.synchronize(i)
        began = time.perf_counter()
        nccl.all_reduce(held)  # type: ignore[no-untyped-call]
        for i in range(count):
            torch.cuda.synchronize(i)
        return time.perf_counter() - began

    return [2 * (count - 1) / count * _COPY_BYTES / t for t in repeat(once, device.seconds)]


def _sustained(device: _Device, seconds: float) -> None:
    """One long run of bf16 products: what is left of the speed once the chip is warm."""
    say(begin="sustained matmul bf16")
    a, b = _pair(device, torch.bfloat16)
    out = torch.empty_like(a)
    began, rates = time.monotonic_ns(), []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        rates.append(2.0 * _MATRIX**3 / device.seconds_of(lambda: torch.mm(a, b, out=out), 20))
    fifth = max(1, len(rates) // 5)
    first, last = sum(rates[:fifth]) / fifth, sum(rates[-fifth:]) / fifth
    say(
        sustained={
            "first": first,
            "last": last,
            "seconds": seconds,
            "n": len(rates),
            "began": began,
            "ended": time.monotonic_ns(),
        }
    )


def main() -> None:
    asked = arguments()
    try:
        cuda_torch()
    except NotImplementedError as error:
        say(skipped="gpu", title="all of it", why=str(error))
    else:
        _measure(int(str(asked["index"])), float(str(asked["seconds"])), float(str(asked["sustained"])))
    say(done=True)


def _measure(index: int, seconds: float, sustained: float) -> None:
    device = _Device(index, seconds)
    properties = torch.cuda.get_device_properties(index)
    say(device={"name": properties.name, "l2_bytes": device.l2, "torch": torch.__version__})
    measure_all(_speeds(device))
    _sustained(device, sustained)


if __name__ == "__main__":
    main()
