"""How much extra work makes a GPU operator take a given percentage longer, found by timing both with events.

Timed as `compare` times: flush, inputs copied into place, then the operator between two events on a stream
that is never empty. So the extra includes whatever a second kernel costs beside its own running time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

__all__ = ["more_work", "spin"]

spin: Callable[[int], None] = torch.cuda._sleep
"""Keeps one thread of the GPU busy for that many SM cycles."""

_event: Callable[..., torch.cuda.Event] = torch.cuda.Event

# Twice the largest L2 in use, filled often enough to outlast the launches that it hides (about 80 µs each).
_FLUSH_BYTES, _FLUSHES = 256 << 20, 3
# An idle GPU takes some ten milliseconds to reach the clocks at which it will be measured.
_WARM_SECONDS = 0.08
_ROUNDS, _MOST_ROUNDS = 7, 16
# Further off than this after all rounds, and the amount would not be what it is called.
_LIMIT = 0.003


def more_work(
    sources: Sequence[torch.Tensor],
    run: Callable[[int, Sequence[torch.Tensor]], object],
    percent: float,
    guess: float,
    most: int,
    pairs: int = 24,
) -> int:
    """The amount for which `run(amount, inputs)` takes `percent` longer than `run(0, inputs)`.

    Args:
        sources: inputs, copied into place before each call.
        guess: amount to begin with; only its order of magnitude matters.
        most: the largest amount that `run` can do.
        pairs: calls of each kind per round.

    Raises:
        RuntimeError: no amount up to `most` comes within 0.3 points.
    """
    if percent == 0:
        return 0
    places = [source.clone() for source in sources]
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=sources[0].device)

    def call(amount: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = _event(enable_timing=True), _event(enable_timing=True)
        for _ in range(_FLUSHES):
            flush.zero_()
        for place, source in zip(places, sources, strict=True):
            place.copy_(source)
        start.record()
        run(amount, places)
        end.record()
        return start, end

    def times(amount: int) -> tuple[float, float]:
        """Median time of the plain call, and median difference to the one with more work, in ms."""
        plain, extra = [], []
        for i in range(pairs):
            first, second = (0, amount) if i % 2 else (amount, 0)
            events = {first: call(first), second: call(second)}
            torch.cuda.synchronize()
            plain.append(events[0][0].elapsed_time(events[0][1]))
            extra.append(events[amount][0].elapsed_time(events[amount][1]) - plain[-1])
        return median(plain), median(extra)

    until = time.monotonic() + _WARM_SECONDS
    while time.monotonic() < until:
        call(0)
        torch.cuda.synchronize()
    return _search(times, percent / 100, guess, most)


def _search(times: Callable[[int], tuple[float, float]], share: float, guess: float, most: int) -> int:
    """The amount at which extra = share x plain, on a line through what was timed near it."""
    amount = max(1, min(round(guess), most))
    tried: list[tuple[int, float]] = []
    for turn in range(_MOST_ROUNDS):
        if turn >= _ROUNDS and min(abs(miss) for _, miss in tried) <= _LIMIT:
            break
        plain, extra = times(amount)
        tried.append((amount, extra / plain - share))
        root = _root(tried, share)
        if root is None:
            # A second kernel costs something at any length, so steps are cautious until there is a slope.
            root = amount * min(4.0, max(0.25, share * plain / max(extra, 1e-9)))
        # Timings have noise, and a line through two close ones could point anywhere.
        amount = max(1, min(round(min(4.0 * amount, max(0.25 * amount, root))), most))
    closest, miss = min(tried, key=lambda entry: abs(entry[1]))
    if abs(miss) > _LIMIT:
        raise RuntimeError(
            f"no extra work of {share:.1%} can be had here: the closest was {closest}, off by {miss:+.2%}"
        )
    least, largest = min(a for a, _ in tried), max(a for a, _ in tried)
    return amount if least <= amount <= largest else closest


def _root(tried: Sequence[tuple[int, float]], share: float) -> float | None:
    """Where the line through the points crosses zero, near ones counting more; None if it does not rise."""
    weights = [1 / (0.2 * share + abs(m)) ** 2 for _, m in tried]
    total = sum(weights)
    a_mean = sum(w * a for w, (a, _) in zip(weights, tried, strict=True)) / total
    m_mean = sum(w * m for w, (_, m) in zip(weights, tried, strict=True)) / total
    square = sum(w * (a - a_mean) ** 2 for w, (a, _) in zip(weights, tried, strict=True))
    product = sum(w * (a - a_mean) * (m - m_mean) for w, (a, m) in zip(weights, tried, strict=True))
    return a_mean - m_mean * square / product if product > 0 else None
