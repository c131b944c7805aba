"""How far rounding moves what a task compares, and what the oracle gives so far beside its inputs.

Runs in the reference process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trackside.comparison.matching import Beside
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.rerounding import HALF_ULP
from trackside.comparison.sets import InputSet

__all__ = ["beside"]

# Moves so far below rounding that what they turn is an exact tie, for each arithmetic that the oracle has.
_TIE_JITTER = {torch.float64: 2.0**-40, torch.float32: 2.0**-18}
# Steps that rounding is worth. Adding 4096 products one by one is off by about 16 of the inputs' own; 16-bit
# values are added in float32, so that their own rounding is most of it.
_ULPS, _ULPS_OF_16_BITS = (1.0, 4.0, 16.0), (1.0, 2.0, 4.0)
# A baseline is narrower than its inputs down to bfloat16, not further.
_NARROWEST = 2.0**-7
# Seconds after which a slow oracle is asked no more: the judge waits for 300.
_PATIENCE = 120.0


def beside(
    oracle: Oracle, path: str, wanted: Any, made: InputSet, seed: int, earlier: Sequence[Any]
) -> Beside:
    """One leaf of the oracle's on inputs beside a set's; none any more once it took too long."""
    g = torch.Generator(oracle.device).manual_seed(seed)
    until = time.monotonic() + _PATIENCE

    def draw(scale: Callable[[torch.dtype], float]) -> Any:
        return drawn(lambda: oracle.answer_beside(made.rebuilt(), seed, earlier, scale, g))

    def rerounded(ulps: float) -> Any:
        times = ulps * HALF_ULP[torch.float32] / HALF_ULP[torch.float64]
        return drawn(lambda: oracle.answer_rerounded(made.rebuilt(), seed, earlier, times, g))

    def drawn(answer: Callable[[], Answer]) -> Any:
        if time.monotonic() > until:
            return None
        value = _tried(lambda: answer().get(path))
        if not isinstance(wanted, torch.Tensor):
            return value
        if not isinstance(value, torch.Tensor) or value.shape != wanted.shape:
            return None
        return value.to(wanted.dtype)

    def at_extreme(tensor: torch.Tensor, place: int, largest: bool) -> Any:
        bent = tensor.detach().clone().reshape(-1)
        reach = bent.double().abs().max().clamp_min(1.0)
        bent[place] = (2 * reach if largest else -2 * reach).to(bent.dtype)
        moved = bent.reshape(tensor.shape).requires_grad_(tensor.requires_grad)
        inputs = made.rebuilt([moved if t is tensor else t for t in made.tensors])
        return _tried(lambda: oracle.answer(inputs, seed, earlier).get(path))

    ulp = oracle.ulp(made.tensors)
    if not ulp and oracle.precision == torch.float64:
        # Pixels have no floats that could be moved; what is computed from them has. What is exact stays, and
        # with it every tie that is one in all arithmetic.
        return Beside(
            hardly=lambda: wanted,
            moved=rerounded,
            ulps=_ULPS,
            widest=0.0,
            at_extreme=at_extreme,
            late=lambda: time.monotonic() > until,
            as_run=lambda: drawn(lambda: oracle.answer_as_run(made.rebuilt(), seed, earlier, _ULPS[1], g)),
        )
    least = math.inf if oracle.precision is None else _TIE_JITTER[oracle.precision]
    return Beside(
        hardly=(lambda: draw(lambda dtype: least)) if least < ulp / 4 else None,
        moved=lambda ulps: draw(lambda dtype: 2 * ulps * HALF_ULP[dtype]),
        ulps=_ULPS if ulp < HALF_ULP[torch.float16] else _ULPS_OF_16_BITS,
        widest=_NARROWEST / ulp if ulp else 0.0,
        at_extreme=at_extreme,
        late=lambda: time.monotonic() > until,
    )


def _tried(answer: Callable[[], Any]) -> Any:
    """An answer beside the inputs; None where the baseline's own checks of its inputs refuse."""
    try:
        return answer()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:
        return None
