"""Traces as torch's profiler writes them, made by hand: a few lines stand for a step on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROCESS, THREAD, DEVICE, STREAM = 4242, 4242, 0, 7


class Maker:
    """Collects events; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def add(self, category: str, name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
        place = {"pid": PROCESS, "tid": THREAD} | {k: more.pop(k) for k in ("pid", "tid") if k in more}
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            **place,
            "ts": start,
            "dur": duration,
            "args": more,
        }
        self.events.append(event)
        return event

    def op(self, name: str, start: float, duration: float, **more: Any) -> None:
        self.add("cpu_op", name, start, duration, **more)

    def mark(self, name: str, start: float, duration: float, **more: Any) -> None:
        self.add("user_annotation", name, start, duration, **more)

    def on_device(
        self,
        category: str,
        name: str,
        launched: float,
        start: float,
        duration: float,
        stream: int = STREAM,
        **more: Any,
    ) -> None:
        """A launch of 2 µs, and what it launched."""
        self._correlation += 1
        number = self._correlation
        self.add("cuda_runtime", "cudaLaunchKernel", launched, 2, correlation=number)
        place = {"pid": DEVICE, "tid": stream, "device": DEVICE, "stream": stream}
        self.add(category, name, start, duration, correlation=number, **place, **more)

    def kernel(self, name: str, launched: float, start: float, duration: float, **more: Any) -> None:
        self.on_device("kernel", name, launched, start, duration, grid=[8, 1, 1], block=[128, 1, 1], **more)

    def copy(self, launched: float, start: float, duration: float, size: int, **more: Any) -> None:
        name = "Memcpy HtoD (Pageable -> Device)"
        self.on_device("gpu_memcpy", name, launched, start, duration, bytes=size, **more)

    def text(self, **layout: Any) -> str:
        return json.dumps({"schemaVersion": 1, "traceEvents": self.events, "traceName": "x.json"}, **layout)

    def write(self, path: Path) -> Path:
        path.write_text(self.text(indent=2))
        return path
