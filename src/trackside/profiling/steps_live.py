"""Tells where the steps of a running program end, by its optimizers.

Runs in the program's process. Models get no hooks: those would make a compiled one compile differently.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["OptimizerSteps"]

# Steps that are seen before it is decided which of several optimizers ends a step.
_DECIDED_AFTER = 8


class OptimizerSteps:
    """Calls `ended` after the step of the program's optimizer.

    Of several the one that steps least often ends a step: a generator's, beside five steps of its critic. The
    first few steps are ends for whichever of them came first. None is kept alive: a program that trains one
    model after the other has an optimizer for each, and when the one that counts is gone, another does.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._seen: Counter[int] = Counter()
        self._first: int | None = None
        self._chosen: int | None = None
        self._known: dict[int, weakref.ref[Any]] = {}
        self._handle: Any = None

    def watch(self) -> None:
        """Put the hook in place; torch has been imported."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handle = register_optimizer_step_post_hook(self._stepped)

    def may_come(self) -> bool:
        """Whether the program has made an optimizer: torch marks the class of the first of each."""
        from torch.optim.optimizer import Optimizer

        classes = [Optimizer]
        for one in classes:
            classes += one.__subclasses__()
        return any(getattr(getattr(one, "step", None), "hooked", False) for one in classes)

    def optimizers(self) -> list[Any]:
        """Those that have taken a step and that the program still has."""
        return [one for known in list(self._known.values()) if (one := known()) is not None]

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: object, args: object, kwargs: object) -> None:
        number = id(optimizer)
        if self._chosen is not None and self._alive(self._chosen) is None:
            self._chosen = self._first = None
            self._seen.clear()
        if self._alive(number) is not optimizer:
            # Numbers come again.
            self._known[number] = weakref.ref(optimizer)
            self._seen.pop(number, None)
        if self._chosen is None:
            self._seen[number] += 1
            if self._alive(self._first) is None:
                self._first = number
            if self._seen.total() < _DECIDED_AFTER:
                if number == self._first:
                    self._ended()
                return
            alive = [one for one in self._seen if self._alive(one) is not None]
            self._chosen = min(alive, key=lambda one: self._seen[one])
        if number == self._chosen:
            self._ended()

    def _alive(self, number: int | None) -> object | None:
        known = self._known.get(number) if number is not None else None
        return known() if known is not None else None
