"""A state whose suspicious leaves have other values for a while, and what the oracle answers with it.

Runs in the reference process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from trackside.comparison import matching
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.sets import InputSet
from trackside.workload import state
from trackside.workload.bending import bend

__all__ = ["BentState"]


class BentState:
    """Bends a state in place when it is made, and puts back every bit on `restore`."""

    def __init__(self, oracle: Oracle, held: Any, kinds: Mapping[str, str], seed: int, signed: bool) -> None:
        self._oracle = oracle
        found = state.walk(held)
        self._tensors = {path: found[path].detach() for path in kinds}
        self._straight = {path: tensor.clone() for path, tensor in self._tensors.items()}
        bend(found, kinds, seed, signed)
        self._bent: dict[str, torch.Tensor] = {}
        oracle.state_changed()

    def restore(self) -> None:
        for path, straight in self._straight.items():
            self._put(path, straight)
        self._oracle.state_changed()

    def ignoring(self, made: InputSet, seed: int, answer: Answer, seconds: float) -> list[dict[str, Any]]:
        """How far off the answer is with a leaf as it was, for each leaf; for the rest at once in the end.

        A state has hundreds of leaves, and each takes a call of the oracle: after so many seconds one call is
        all that those which are left get.
        """
        began, found, left = time.monotonic(), [], list(self._tensors)
        self._bent = {path: tensor.clone() for path, tensor in self._tensors.items()}
        while left:
            paths = left if time.monotonic() - began > seconds else left[:1]
            left = left[len(paths) :]
            with self._as_it_was(paths):
                lazy = self._oracle.answer(made.rebuilt(), seed)
            rows = [
                {"path": path, **matching.compare(lazy[path], wanted)}
                for path, wanted in answer.items()
                if path in lazy
            ]
            found.append({"state": paths, "leaves": rows})
        return found

    @contextmanager
    def _as_it_was(self, paths: list[str]) -> Iterator[None]:
        for path in paths:
            self._put(path, self._straight[path])
        self._oracle.state_changed()
        try:
            yield
        finally:
            # All, in order: where two share memory, the last that was bent is what both hold.
            for path, bent in self._bent.items():
                self._put(path, bent)
            self._oracle.state_changed()

    def _put(self, path: str, values: torch.Tensor) -> None:
        self._tensors[path].copy_(values)
