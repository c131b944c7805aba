"""The few CUDA driver calls that timing and raw copies need, through ctypes.

Nothing here goes through torch: user code cannot replace what it cannot reach by name.
"""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["CudaError", "Driver"]

_IPC_LAZY_PEER_ACCESS = 1
_OUT_OF_MEMORY = 2

_ptr = ctypes.c_uint64
_handle = ctypes.c_void_p


class CudaError(RuntimeError):
    """A driver call failed."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(
            f"{call} failed with CUDA error {code}" + (" (out of memory)" if code == _OUT_OF_MEMORY else "")
        )
        self.out_of_memory = code == _OUT_OF_MEMORY


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_byte * 64),)


class Driver:
    """Driver calls on the current context; stream 0 is torch's default stream."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        names = {
            "cuMemAlloc_v2": [ctypes.POINTER(_ptr), ctypes.c_size_t],
            "cuMemFree_v2": [_ptr],
            "cuMemGetInfo_v2": [ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
            "cuMemcpyDtoDAsync_v2": [_ptr, _ptr, ctypes.c_size_t, _handle],
            "cuMemcpyHtoDAsync_v2": [_ptr, ctypes.c_void_p, ctypes.c_size_t, _handle],
            "cuMemcpyDtoHAsync_v2": [ctypes.c_void_p, _ptr, ctypes.c_size_t, _handle],
            "cuMemsetD32Async": [_ptr, ctypes.c_uint, ctypes.c_size_t, _handle],
            "cuEventCreate": [ctypes.POINTER(_handle), ctypes.c_uint],
            "cuEventRecord": [_handle, _handle],
            "cuEventSynchronize": [_handle],
            "cuEventQuery": [_handle],
            "cuEventElapsedTime": [ctypes.POINTER(ctypes.c_float), _handle, _handle],
            "cuStreamSynchronize": [_handle],
            "cuCtxSynchronize": [],
            "cuCtxResetPersistingL2Cache": [],
            "cuIpcGetMemHandle": [ctypes.POINTER(_IpcHandle), _ptr],
            "cuIpcOpenMemHandle_v2": [ctypes.POINTER(_ptr), _IpcHandle, ctypes.c_uint],
        }
        self._calls: dict[str, Any] = {}
        for name, argtypes in names.items():
            call = getattr(self._lib, name)
            call.argtypes, call.restype = argtypes, ctypes.c_int
            self._calls[name] = call
        # Bound once: a look-up per call would cost more than the call.
        self._copy = self._calls["cuMemcpyDtoDAsync_v2"]
        self.record_call = self._calls["cuEventRecord"]
        self.wait_call = self._calls["cuEventSynchronize"]
        self.query_call = self._calls["cuEventQuery"]
        self.synchronize_call = self._calls["cuCtxSynchronize"]
        self._memset = self._calls["cuMemsetD32Async"]

    def _do(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code:
            raise CudaError(name, code)

    def allocate(self, size: int) -> int:
        pointer = _ptr()
        self._do("cuMemAlloc_v2", ctypes.byref(pointer), max(size, 256))
        return int(pointer.value)

    def free_memory(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def free(self, pointer: int) -> None:
        self._do("cuMemFree_v2", pointer)

    def copy(self, target: int, source: int, size: int) -> None:
        """Device to device on stream 0."""
        if size and (code := self._copy(target, source, size, None)):
            raise CudaError("cuMemcpyDtoDAsync", code)

    def upload(self, target: int, source: bytes, size: int) -> None:
        """Host to device on stream 0; the source must stay as it is until that has come so far."""
        if size:
            self._do("cuMemcpyHtoDAsync_v2", target, source, size, None)

    def fill(self, target: int, word: int, size: int) -> None:
        if code := self._memset(target, word, size // 4, None):
            raise CudaError("cuMemsetD32Async", code)

    def event(self) -> Any:
        event = _handle()
        self._do("cuEventCreate", ctypes.byref(event), 0)
        return event

    def record(self, event: Any) -> None:
        if code := self.record_call(event, None):
            raise CudaError("cuEventRecord", code)

    def elapsed_ns(self, start: Any, end: Any) -> float:
        milliseconds = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e6

    def synchronize(self) -> None:
        """Wait for every stream of this context."""
        self._do("cuCtxSynchronize")

    def reset_persisting_l2(self) -> None:
        self._do("cuCtxResetPersistingL2Cache")

    def export(self, pointer: int) -> str:
        handle = _IpcHandle()
        self._do("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        return bytes(handle).hex()

    def import_(self, handle: str) -> int:
        pointer = _ptr()
        self._do(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(pointer),
            _IpcHandle.from_buffer_copy(bytes.fromhex(handle)),
            _IPC_LAZY_PEER_ACCESS,
        )
        return int(pointer.value)
