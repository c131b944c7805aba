"""Global switches of a worker that change speed or precision, read so that two arms can be compared."""

from __future__ import annotations

import os
from typing import Any

import torch

__all__ = ["read"]


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


def _denormals_are_flushed() -> bool:
    # There is no getter; the smallest subnormal halved twice tells.
    return bool((torch.tensor([1e-310], dtype=torch.float64) * 0.5 == 0).item())
