"""What other roundings on the way do to an answer, and which of a call's errors that explains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from trackside.comparison import accuracy
from trackside.comparison.oracle import Answer, Oracle
from trackside.comparison.rerounding import HALF_ULP
from trackside.comparison.sets import InputSet
from trackside.workload import tree

__all__ = ["Place", "answers", "beside", "errors", "unexplained"]

# Other roundings after which an element that none of them took where it was found was not taken there by one:
# a value next to a tie goes over it in one of eight. One that none of so few moved at all is at no tie.
_TELLING_DRAWS, _FEWEST_DRAWS = 64, 8
# Times what rounding was seen to move an element that another may have moved it.
_HALF_WAY = 2.0
# One that nearly every rounding moves has no tie but an error of its own, of which the largest of millions is
# eight times the rms (tolerance.py). Three in four normally distributed moves are a 25th of that, or more;
# a value at a tie goes over it in half of them.
_MOVES, _NEARLY_EVERY = 1 / 25, 0.75


@dataclass(frozen=True)
class Place:
    """A call: its inputs, its seed, the calls before it, and what the oracle answers there."""

    made: InputSet
    seed: int
    earlier: list[Any]
    answer: Callable[[], Answer]


def answers(oracle: Oracle, place: Place, asked: dict[str, Any]) -> Iterator[Answer]:
    """The answer as it is, then with what is on the way rounded otherwise, as often as is asked for.

    Rounding in the types in which the baseline computes, however narrow its inputs are; and in the type of
    the `output` that is asked about, if any is. Of doubles the oracle is one itself: there its inputs are
    moved by half an ulp of a double, since they may be float32 and still be meant exactly.
    """
    times, output = asked["times"], tree.DTYPES[asked["output"]] if asked["output"] else None
    g = torch.Generator(oracle.device).manual_seed(place.seed + 1 + asked.get("turn", 0))

    def fresh() -> tuple[Any, int, list[Any]]:
        return place.made.rebuilt(), place.seed, place.earlier

    as_run = oracle.precision is None or output not in (torch.float64, torch.complex128)
    yield oracle.answer_as_run(*fresh()) if as_run else place.answer()
    until = time.monotonic() + asked["seconds"]
    for _ in range(asked["draws"]):
        if as_run:
            yield oracle.answer_as_run(*fresh(), times, g, output)
        elif oracle.ulp(place.made.tensors):
            yield oracle.answer_beside(*fresh(), lambda dtype: times * HALF_ULP[torch.float64], g)
        else:
            # Integers are not moved: where there is nothing else, what is computed from them is.
            yield oracle.answer_rerounded(*fresh(), times, g)
        if time.monotonic() > until:
            return


def beside(oracle: Oracle, place: Place, seconds: float) -> Iterator[Answer]:
    """The oracle's on inputs that are moved by up to half a unit of their types' last place."""
    if oracle.precision is None or not oracle.ulp(place.made.tensors):
        return
    g = torch.Generator(oracle.device).manual_seed(place.seed + 2)
    until = time.monotonic() + seconds
    for _ in range(_TELLING_DRAWS):
        yield oracle.answer_beside(place.made.rebuilt(), place.seed, place.earlier, HALF_ULP.__getitem__, g)
        if time.monotonic() > until:
            return


def errors(moved: Iterator[Answer], unmoved: Answer, oracle: Answer) -> list[dict[str, Any]]:
    """How far each rounding moved each float output, in bins of the oracle's magnitude."""
    return [
        {"path": path, **_error(one[path], value, oracle.get(path, value))}
        for one in moved
        for path, value in unmoved.items()
        if isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and tuple(one[path].shape) == tuple(value.shape)
    ]


def unexplained(
    path: str,
    found: torch.Tensor,
    oracle: torch.Tensor,
    baseline: torch.Tensor,
    allowed: dict[str, float],
    rounded: Iterator[Answer],
    beside: Iterator[Answer],
) -> dict[str, Any]:
    """How many of the elements that are beyond what their bins allow rounding does not explain.

    Each by itself: it does where the baseline jumped to the same value on the same inputs, or where the
    answer jumps there, or moves half as far, in one of the `rounded` answers; the first is as it is. Or where
    it moves in nearly all of them, by so much that an error as large is due among many. Or where the oracle
    gives that value `beside`, on inputs rounded otherwise. `late` says that there were too few to tell.
    """
    at = torch.nonzero(accuracy.beyond(found, oracle, allowed)).reshape(-1)
    limits = accuracy.Limits(allowed, found)
    mine = _elements(found, at)
    off = (mine - _elements(oracle, at)).abs()
    explained = limits.near(mine, _elements(baseline, at))
    first = next(rounded)[path]
    jumped, draws, moves = torch.zeros_like(explained), 0, torch.zeros_like(off)
    while not bool(explained.all()) and (moved := next(rounded, None)) is not None:
        draws += 1
        if moved[path].shape == found.shape == first.shape:
            taken, before = _elements(moved[path], at), _elements(first, at)
            # Ill-conditioned ones are nowhere twice; how far rounding moves them is the measure.
            away = torch.nan_to_num((taken - before).abs(), nan=0.0, posinf=0.0)
            explained |= limits.near(mine, taken) | (off <= _HALF_WAY * away)
            jumped |= ~limits.near(taken, before)
            moves += away >= _MOVES * off
        if draws >= _TELLING_DRAWS:
            explained |= moves >= _NEARLY_EVERY * draws
    # What is equal stays equal however it is rounded, so that it does not show which of two may come first.
    while not bool(explained.all()) and (other := next(beside, None)) is not None:
        if other[path].shape == found.shape:
            explained |= limits.near(mine, _elements(other[path], at))
    return {
        "unexplained": int((~explained).sum()),
        "late": draws < _TELLING_DRAWS and (draws < _FEWEST_DRAWS or bool((jumped & ~explained).any())),
    }


def _elements(tensor: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return accuracy.as_real(tensor).reshape(-1)[at].double()


def _error(moved: torch.Tensor, unmoved: torch.Tensor, oracle: Any) -> dict[str, Any]:
    one, other = accuracy.as_real(moved).double(), accuracy.as_real(unmoved).double()
    right = accuracy.as_real(oracle).double() if isinstance(oracle, torch.Tensor) else other
    right = right if right.shape == other.shape else other
    # Infinities and NaN have no distance; where the two agree there is none.
    moves = torch.where(one == other, 0.0, one - other)
    return accuracy.measure(right + moves, right, bulk=True)
