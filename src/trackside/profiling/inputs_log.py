"""What operators are called with, noted where nothing is timed. Runs in the program's process.

Told to record shapes, torch's profiler keeps a small part of every tensor that an operator was given, until
it ends. These parts lie between the memory of tensors, which falls into pieces too small for the next ones: a
step of 12.4 ms had 3,900 page faults more and took 18.4 ms; without shapes 800 and 14.0 ms. Torch's execution
trace keeps nothing of a tensor; what it lacks is times.

A range that is open when one such trace ends, and closed while another runs, ends the program by a
segmentation fault: after one that left a range open there is no other.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trackside.profiling.torch_messages import TorchMessages

__all__ = ["INPUTS_FILE", "STEPS_NOTED", "InputsLog"]

INPUTS_FILE = "inputs.json"
STEPS_NOTED = 2
"""Of a program with steps: enough to see whether they are alike."""
_PART = f"{INPUTS_FILE}.part"
_BEGINS = "_add_execution_trace_observer"
# About a kilobyte an operator. With so many of them a step is short of room whatever is recorded.
_MOST_BYTES = 100_000_000
# Of operators and what they return: ranges have none.
_SHAPES = re.compile(rb'"shapes": (\[.+\]), "types"')
# An operator or range with what it is in. These are written when they end, and are in none that is not.
_INSIDE = re.compile(rb'"id": (\d+), "name": "([^\n]*)", "ctrl_deps": (\d+)')
_END = "trackside: end"
# Without steps: what is called as often is called in every turn, and others may be this part of all.
_OFTEN, _SELDOM = 3, 0.02


class InputsLog:
    """What operators are called with, from `begin` to `end`.

    Args:
        folder: where the file goes.
    """

    def __init__(self, folder: str) -> None:
        self._part, self._path = (os.path.join(folder, name) for name in (_PART, INPUTS_FILE))
        self._runs = False
        self._left_open = False
        """Whether a range that had begun was open when a trace ended."""
        self._messages = TorchMessages()
        self._programs: Any = None
        """How the program would begin a trace of its own."""

    def begin(self) -> bool:
        """From now on, if torch can and the program does not have the same done."""
        if self._left_open:
            return False
        try:
            added = self._quietly(lambda torch: torch._add_execution_trace_observer(self._part))
            # Torch says so too where there is one already, and has not opened our file.
            self._runs = added and os.path.exists(self._part)
            if self._runs:
                self._give_way_to_others()
                os.register_at_fork(after_in_child=self._leave_child)
                self._quietly(lambda torch: torch._enable_execution_trace_observer())
        except Exception:
            # A torch that has it otherwise, or not at all.
            self.drop()
        return self._runs

    def end(self, steps: int | None) -> bool:
        """Whether it is known, since shapes do not change from step to step.

        Args:
            steps: how many there were, if that is known.
        """
        if not self._runs:
            return False
        self._stop()
        try:
            with open(self._part, "rb") as file:
                shapes = _SHAPES.findall(file.read(_MOST_BYTES + 1))
            if shapes and (_in_turns(shapes) if steps is None else _in_steps(shapes, steps)):
                os.replace(self._part, self._path)
                return True
        except OSError:
            pass
        self.drop()
        return False

    def drop(self) -> None:
        """Take it out of the program, and keep nothing of it."""
        with suppress(Exception):
            self._stop()
        with suppress(OSError):
            os.remove(self._part)

    def is_too_large(self) -> bool:
        """Whether there are so many operators that it should be dropped."""
        with suppress(OSError):
            return self._runs and os.path.getsize(self._part) > _MOST_BYTES
        return False

    def _stop(self) -> None:
        if self._runs:
            self._runs = False
            self._take_back()
            # Ours lies in whatever range this thread has open, which shows that one is.
            with suppress(Exception), sys.modules["torch"]._C._profiler._RecordFunctionFast(_END):
                pass
            self._quietly(lambda torch: torch._disable_execution_trace_observer())
            self._quietly(lambda torch: torch._remove_execution_trace_observer())
            self._left_open = self._leaves_open()

    def _leaves_open(self) -> bool:
        try:
            with open(self._part, "rb") as file:
                rows = _INSIDE.findall(file.read(_MOST_BYTES))
        except OSError:
            return True
        seen = any(name == _END.encode() for _, name, _ in rows)
        return not seen or bool({inside for *_, inside in rows} - {number for number, *_ in rows})

    def _give_way_to_others(self) -> None:
        """There can be one trace only, and the program's own comes first: when it begins, ours ends."""
        module: Any = sys.modules.get("torch.profiler.profiler")
        self._programs = begins = getattr(module, _BEGINS, None)
        if begins is None:
            return

        def beginning(*given: Any) -> Any:
            self.drop()
            return begins(*given)

        setattr(module, _BEGINS, beginning)

    def _take_back(self) -> None:
        if self._programs is not None:
            setattr(sys.modules["torch.profiler.profiler"], _BEGINS, self._programs)
            self._programs = None

    def _quietly(self, ask: Callable[[Any], Any]) -> bool:
        """Torch warns of what it is asked, in the output; where that cannot be kept back, it is not asked."""
        if not self._messages.errors_only():
            return False
        try:
            torch: Any = sys.modules["torch"]
            return bool(ask(torch._C._profiler))
        finally:
            self._messages.as_before()

    def _leave_child(self) -> None:
        """A loader's worker would write into our file as long as it lives."""
        if self._runs:
            with suppress(Exception):
                self._runs = False
                self._quietly(lambda torch: torch._disable_execution_trace_observer())


def _in_steps(shapes: list[bytes], steps: int) -> bool:
    """Whether each has the same. Within one, threads may come in another order."""
    length = len(shapes) // steps
    each = [Counter(shapes[place : place + length]) for place in range(0, len(shapes), length or 1)]
    return len(each) == steps and all(one == each[0] for one in each)


def _in_turns(shapes: list[bytes]) -> bool:
    counts = Counter(shapes)
    return sum(count for count in counts.values() if count < _OFTEN) <= _SELDOM * len(shapes)
