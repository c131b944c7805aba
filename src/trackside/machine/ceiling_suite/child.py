"""What the measuring programs share: lines of JSON to the parent, and samples by the clock."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trackside.workload.sandbox import die_with_parent

__all__ = ["Speed", "any_torch", "arguments", "cuda_torch", "measure_all", "repeat", "say"]

# A rate is told from at least so many samples, whatever time it takes; a slow one from these alone.
FEWEST, MOST = 5, 400


@dataclass(frozen=True)
class Speed:
    """One thing to measure."""

    name: str
    """As other programs know it: `gpu.memory.read`."""
    title: str
    """As people do: `memory read`."""
    unit: str
    method: str
    samples: Callable[[], list[float]]
    """Values in the unit, one for each repetition; `NotImplementedError` says why there can be none."""


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def repeat(once: Callable[[], float], seconds: float, warm: int = 2) -> list[float]:
    """Seconds of each repetition, for so long; the first few are not counted."""
    for _ in range(warm):
        once()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < FEWEST or (time.perf_counter() < until and len(found) < MOST):
        found.append(once())
    return found


def measure_all(speeds: Iterator[Speed]) -> None:
    """Measure one after the other; what one of them cannot do costs itself only.

    One that comes again adds its samples to those it had, and its result is told anew.
    """
    seen: dict[str, list[float]] = {}
    for speed in speeds:
        say(begin=speed.title)
        began = time.monotonic_ns()
        try:
            samples = seen[speed.name] = sorted(seen.get(speed.name, []) + speed.samples())
        except NotImplementedError as error:
            say(skipped=speed.name, title=speed.title, why=str(error))
            continue
        except Exception as error:
            say(
                skipped=speed.name,
                title=speed.title,
                why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            )
            continue
        quarter = len(samples) // 4
        middle = statistics.median(samples)
        say(
            result={
                "name": speed.name,
                "title": speed.title,
                "unit": speed.unit,
                "value": middle,
                "best": samples[0] if speed.unit in ("s", "µs", "ns") else samples[-1],
                "spread": (samples[-1 - quarter] - samples[quarter]) / middle if middle else 0.0,
                "n": len(samples),
                "method": speed.method,
                "began": began,
                "ended": time.monotonic_ns(),
            }
        )


def arguments() -> dict[str, object]:
    """What the parent asks for; from here on this process ends with it."""
    asked: dict[str, object] = json.loads(sys.argv[1])
    die_with_parent()
    if os.getppid() != asked["parent"]:
        sys.exit("the process that asked ended before its question was read")
    return asked


def any_torch() -> Any:
    """The module, or `NotImplementedError` with the way to get one."""
    try:
        import torch
    except ImportError as error:
        raise NotImplementedError("torch is not installed: pip install 'trackside[torch]'") from error
    return torch


def cuda_torch() -> Any:
    """As `any_torch`, of a torch that can use NVIDIA's GPUs."""
    torch = any_torch()
    if not torch.version.cuda:
        raise NotImplementedError(
            f"torch {torch.__version__} is built without CUDA: install one for the driver's CUDA, as "
            "pytorch.org/get-started says"
        )
    return torch
