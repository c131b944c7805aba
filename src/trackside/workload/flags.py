"""Global switches of a worker that change speed or precision, read so that two arms can be compared."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import torch

from trackside.workload.memory import KEPT_HEAP_BYTES, LARGE_BLOCK_BYTES

__all__ = ["read"]


class _HeapFacts(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*"abcdefgh", "free", "at_its_end")]


_libc = ctypes.CDLL(None)
_malloc, _free = _libc.malloc, _libc.free
_malloc.restype, _malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_free.restype, _free.argtypes = None, [ctypes.c_void_p]
# Of the main heap; glibc has it since 2.33, other libraries have not.
_heap = getattr(_libc, "mallinfo2", None)
if _heap is not None:
    _heap.restype = _HeapFacts


def read() -> dict[str, Any]:
    """The switches as plain values; a name that this torch lacks is left out."""
    matmul, cudnn, cuda = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.cuda
    values: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "default_device": str(torch.get_default_device()),
        "grad_enabled": torch.is_grad_enabled(),
        "inference_mode": torch.is_inference_mode_enabled(),
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "flush_denormal": _denormals_are_flushed(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "mkldnn": torch.backends.mkldnn.enabled,
        "gc_threshold": list(gc.get_threshold()),
        "large_blocks_from_the_system": _large_blocks_are_mapped(),
        "unused_heap_kept": _heap_is_kept(),
    }
    for name, owner, attribute in (
        ("float32_matmul_precision", None, ""),
        ("matmul.allow_tf32", matmul, "allow_tf32"),
        ("matmul.allow_fp16_reduced_precision_reduction", matmul, "allow_fp16_reduced_precision_reduction"),
        ("matmul.allow_bf16_reduced_precision_reduction", matmul, "allow_bf16_reduced_precision_reduction"),
        ("matmul.allow_fp16_accumulation", matmul, "allow_fp16_accumulation"),
        ("cudnn.allow_tf32", cudnn, "allow_tf32"),
        ("cudnn.benchmark", cudnn, "benchmark"),
        ("cudnn.enabled", cudnn, "enabled"),
        ("sdp.flash", cuda, "flash_sdp_enabled"),
        ("sdp.mem_efficient", cuda, "mem_efficient_sdp_enabled"),
        ("sdp.math", cuda, "math_sdp_enabled"),
        ("sdp.cudnn", cuda, "cudnn_sdp_enabled"),
    ):
        try:
            value = torch.get_float32_matmul_precision() if owner is None else getattr(owner, attribute)
            values[name] = value() if callable(value) else value
        except (AttributeError, RuntimeError):
            continue
    return values


def _large_blocks_are_mapped() -> bool:
    """Whether a tensor beyond malloc's threshold is memory of its own, which each call has to fault in.

    `mallopt` can end that for everything that runs in the process. There is no getter; the second bit before
    a block of glibc's tells, where the heap has no room for it.
    """
    if _heap is None:
        return True
    block = torch.empty(_heap().free + LARGE_BLOCK_BYTES + (1 << 20), dtype=torch.uint8)
    return bool(ctypes.c_size_t.from_address(block.data_ptr() - ctypes.sizeof(ctypes.c_size_t)).value & 2)


def _heap_is_kept() -> bool:
    """Whether malloc keeps more at the end of the heap than it does unless it is told to."""
    if _heap is None:
        return False
    size = LARGE_BLOCK_BYTES - (1 << 20)
    # So many that the heap must grow by what is kept at most; nobody writes to them.
    blocks = [_malloc(size) for _ in range((_heap().free + KEPT_HEAP_BYTES) // size + 2)]
    for block in reversed(blocks):
        _free(block)
    return bool(_heap().at_its_end > KEPT_HEAP_BYTES)


def _denormals_are_flushed() -> bool:
    # There is no getter; the smallest subnormal halved twice tells.
    return bool((torch.tensor([1e-310], dtype=torch.float64) * 0.5 == 0).item())
