"""Inside the program when it runs a second time, under ncu: ends it once enough steps have been counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from trackside.profiling.inside import Setting
from trackside.profiling.on_import import when_imported
from trackside.profiling.steps_live import OptimizerSteps

__all__ = ["around"]


@contextmanager
def around(setting: Setting) -> Iterator[None]:
    """Counts steps; a program without an optimizer runs to its end, or to the limit of its time."""
    left = int(setting.configuration["steps"])

    def ended() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            setting.messages.send("counted")
            # Its own way of ending would save, print and wait, once more.
            os._exit(0)

    steps = OptimizerSteps(ended)
    when_imported("torch", lambda torch: steps.watch())
    try:
        yield
    finally:
        steps.close()
