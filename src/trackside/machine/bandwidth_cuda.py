"""Child program of `ceilings`: memory and L2 bandwidth of a CUDA device through the driver library alone.

Runs as a script on the standard library. Takes a JSON object as its argument, prints one: `times` or `error`.
"""

import ctypes
import json
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# CUDA_ERROR_NO_DEVICE: there is none at all; CUDA_ERROR_INVALID_DEVICE: not one of this number.
_KINDS = {100: "unsupported", 101: "not-found"}

# Two such buffers: far larger than any L2, and still short enough for a hundred repetitions.
_DRAM_BYTES = 1 << 30
# Operations between two events: the window is then long against the events' resolution of 0.5 µs.
_DRAM_BATCH, _L2_BATCH = 4, 64
# Data that is neither zero nor a repeated byte: zeros can be faster than any real data.
_PATTERN = 0x3F8A51C7

_POINTER = ctypes.c_uint64  # CUdeviceptr
_HANDLE = ctypes.c_void_p  # CUcontext, CUstream, CUevent
_DEVICE = ctypes.c_int  # CUdevice

# Names as the driver exports them: cuda.h maps the plain names to these versions.
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuGetErrorString": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
    "cuDeviceGet": [ctypes.POINTER(_DEVICE), ctypes.c_int],
    "cuDeviceGetName": [ctypes.c_char_p, ctypes.c_int, _DEVICE],
    "cuDeviceGetUuid": [ctypes.c_char_p, _DEVICE],
    "cuDeviceGetAttribute": [ctypes.POINTER(ctypes.c_int), ctypes.c_int, _DEVICE],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(_HANDLE), _DEVICE],
    "cuDevicePrimaryCtxRelease_v2": [_DEVICE],
    "cuCtxSetCurrent": [_HANDLE],
    "cuMemGetInfo_v2": [ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
    "cuMemAlloc_v2": [ctypes.POINTER(_POINTER), ctypes.c_size_t],
    "cuMemFree_v2": [_POINTER],
    "cuStreamCreate": [ctypes.POINTER(_HANDLE), ctypes.c_uint],
    "cuStreamSynchronize": [_HANDLE],
    "cuMemsetD32Async": [_POINTER, ctypes.c_uint, ctypes.c_size_t, _HANDLE],
    "cuMemcpyDtoDAsync_v2": [_POINTER, _POINTER, ctypes.c_size_t, _HANDLE],
    "cuEventCreate": [ctypes.POINTER(_HANDLE), ctypes.c_uint],
    "cuEventRecord": [_HANDLE, _HANDLE],
    "cuEventSynchronize": [_HANDLE],
    "cuEventElapsedTime": [ctypes.POINTER(ctypes.c_float), _HANDLE, _HANDLE],
}


class _CudaError(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Driver:
    """libcuda with declared signatures; every call but the error text's is checked."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _CudaError("unsupported", f"the NVIDIA driver library is not here: {error}") from None
        for name, arguments in _SIGNATURES.items():
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise _CudaError("unsupported", f"the NVIDIA driver is too old: it has no {name}") from None
            function.restype = ctypes.c_int
            function.argtypes = arguments

    def __call__(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            kind = _KINDS.get(status, "device")
            reason = (text.value or b"no text").decode("utf-8", "replace")
            raise _CudaError(kind, f"{name} failed with error {status}: {reason}")


def measure(index: int, seconds: float) -> dict[str, object]:
    """Seconds for each repetition of each operation and size, with what the device says about itself."""
    cuda = _Driver()
    cuda("cuInit", 0)
    device, context = _DEVICE(), _HANDLE()
    cuda("cuDeviceGet", ctypes.byref(device), index)
    name, identity, l2 = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16), ctypes.c_int()
    cuda("cuDeviceGetName", name, len(name), device)
    cuda("cuDeviceGetUuid", identity, device)
    cuda("cuDeviceGetAttribute", ctypes.byref(l2), _L2_CACHE_SIZE, device)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        cuda("cuCtxSetCurrent", context)
        times = _times(cuda, l2.value, seconds)
    finally:
        cuda("cuDevicePrimaryCtxRelease_v2", device)
    return {
        "name": name.value.decode("utf-8", "replace"),
        "uuid": f"GPU-{uuid.UUID(bytes=identity.raw)}",
        "l2_bytes": l2.value,
        "times": times,
    }


def _times(cuda: _Driver, l2: int, seconds: float) -> list[dict[str, object]]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    size = min(_DRAM_BYTES, free.value // 4) & ~0xFFFF
    if size < 4 * l2 or size == 0:
        raise _CudaError(
            "device", f"{free.value >> 20} MiB of device memory are free, {16 * l2 >> 20} needed"
        )
    source, target, stream = _POINTER(), _POINTER(), _HANDLE()
    start, end = _HANDLE(), _HANDLE()
    cuda("cuMemAlloc_v2", ctypes.byref(source), size)
    cuda("cuMemAlloc_v2", ctypes.byref(target), size)
    cuda("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
    cuda("cuEventCreate", ctypes.byref(start), 0)
    cuda("cuEventCreate", ctypes.byref(end), 0)

    def fill(count: int) -> None:
        cuda("cuMemsetD32Async", target, _PATTERN, count // 4, stream)

    def copy(count: int) -> None:
        cuda("cuMemcpyDtoDAsync_v2", target, source, count, stream)

    def timed(operation: Callable[[int], None], count: int, batch: int) -> float:
        # One untimed operation first: on an idle stream the events would measure the first launch as well.
        # While it runs, the others queue up behind it.
        operation(count)
        cuda("cuEventRecord", start, stream)
        for _ in range(batch):
            operation(count)
        cuda("cuEventRecord", end, stream)
        cuda("cuEventSynchronize", end)
        elapsed = ctypes.c_float()
        cuda("cuEventElapsedTime", ctypes.byref(elapsed), start, end)
        return elapsed.value / 1e3 / batch

    cuda("cuMemsetD32Async", source, _PATTERN, size // 4, stream)
    cuda("cuStreamSynchronize", stream)
    # Two L2 sizes: the difference of their times is free of the gap between two launches, which lasts
    # about as long as such an operation. Source and target together stay within half of the L2.
    points = [
        (place, operation, count & ~0xFF, batch)
        for place, count, batch in (
            ("dram", size, _DRAM_BATCH),
            ("l2", l2 // 4, _L2_BATCH),
            ("l2", l2 // 8, _L2_BATCH),
        )
        for operation in ("fill", "copy")
        if count
    ]
    operations = {"fill": fill, "copy": copy}
    found: list[list[float]] = [[] for _ in points]
    # In rounds, and by time: the clocks of an idle GPU take tens of milliseconds to rise.
    until = time.perf_counter() + seconds
    while not found[-1] or time.perf_counter() < until:
        for samples, (_, operation, count, batch) in zip(found, points, strict=True):
            samples.append(timed(operations[operation], count, batch))
    cuda("cuMemFree_v2", source)
    cuda("cuMemFree_v2", target)
    return [
        {"place": place, "operation": operation, "bytes": count, "seconds": samples}
        for samples, (place, operation, count, _) in zip(found, points, strict=True)
    ]


if __name__ == "__main__":
    try:
        print(json.dumps(measure(**json.loads(sys.argv[1]))))
    except _CudaError as error:
        print(json.dumps({"error": {"kind": error.kind, "message": str(error)}}))
