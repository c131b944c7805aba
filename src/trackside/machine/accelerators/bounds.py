"""What the figures allow at best: ridge points, and how fast a model can decode and prefill on one device.

From the weights alone: no KV cache, no activations, and every weight read for every token.
"""

import math
from dataclasses import dataclass
from typing import Final

from trackside.machine.accelerators.sheet import Accelerator

__all__ = ["BYTES", "Model", "decode_rate", "devices_needed", "prefill_seconds", "ridge"]

BYTES: Final = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
}
"""Of one weight. Scales of block formats are left out: they add 3 to 13 %."""

_FLOPS_PER_WEIGHT: Final = 2
"""One multiplication and one addition for each weight and token; attention comes on top."""


@dataclass(frozen=True, slots=True)
class Model:
    params: float
    weight_bytes: float
    dtype: str
    """Of the weights and of the arithmetic."""


def ridge(row: Accelerator, dtype: str) -> float | None:
    """FLOP for each byte of memory traffic above which arithmetic is the limit, not memory."""
    if dtype not in row.dense or row.bandwidth is None:
        return None
    return row.dense[dtype].value / row.bandwidth.value


def decode_rate(row: Accelerator, model: Model) -> float | None:
    """Tokens a second at batch 1: each takes one pass over the weights."""
    return None if row.bandwidth is None else row.bandwidth.value / model.weight_bytes


def prefill_seconds(row: Accelerator, model: Model, tokens: int) -> float | None:
    """For a prompt of that many tokens; None where the sheet has no FLOP/s for the dtype."""
    if model.dtype not in row.dense:
        return None
    return _FLOPS_PER_WEIGHT * model.params * tokens / row.dense[model.dtype].value


def devices_needed(row: Accelerator, model: Model) -> int | None:
    """For the weights alone; 1 means that they fit."""
    return None if row.memory is None else math.ceil(model.weight_bytes / row.memory.value)
