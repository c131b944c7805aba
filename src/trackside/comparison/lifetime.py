"""How long outputs stay what they were when a call returned them: held, read again, some written into."""

from __future__ import annotations

from typing import Any

from trackside.comparison.arms import Arm, Slot
from trackside.comparison.bench import Bench

__all__ = ["LATE", "changes_later", "kept_outputs_change"]

# How long a deferred write has to show itself, in seconds.
LATE = 0.05
# What an output that is a view of an input is said to share memory with.
_OF_THE_CALLER = ("in:", "exchange memory")


def kept_outputs_change(bench: Bench, arm: Arm, count: int) -> dict[str, Any] | None:
    sets = bench.draw_many(count)
    slot = bench.run(arm, sets, [bench.seed() for _ in sets], keep=True, timeout=bench.build_timeout)
    found = changes_later(bench, arm, slot)
    bench.forget([slot])
    return found


def changes_later(bench: Bench, arm: Arm, slot: Slot, spoil: bool = False) -> dict[str, Any] | None:
    """Which held output changes after it was returned, if one does.

    On a CPU its inputs are overwritten meanwhile: whoever maps their memory at another address shares it all
    the same. With `spoil` the caller then writes into its outputs, as it may where they are its own; what
    later calls make of that, checks of those show.
    """
    on_cpu = bench.device == "cpu"
    if on_cpu:
        places, other = list(range(len(slot.calls))), bench.draw_many(1)
        bench.ask("fill", arm=arm.name, slots=places, sets=other * len(places))
        bench.ask("forget", sets=other, calls=[])
        for place in places:
            arm.holds.pop(place, None)
    alone = [f["path"] for f in slot.calls[0].leaves if f["kind"] == "tensor" and not f.get("alias")]
    # Not one alone: several show first whether they are the same memory, which says more than a wrong answer.
    spoil = spoil and on_cpu and len(slot.calls) > 1
    spoilt = [path for path in alone if path.startswith("out")] if spoil else []
    answer = bench.tell(arm, "again", arm.call_timeout + 10, seconds=LATE, spoil=spoilt)
    if answer.get("overwritten"):
        return {"graph": True}
    graphs, shared = answer.get("graphs") is True, answer.get("shared") is True
    again = [bench.id() for _ in slot.calls]
    sizes = [max((f["offset"] + f["span"] for f in c.leaves if "offset" in f), default=0) for c in slot.calls]
    bench.ask("take", arm=arm.name, slots=list(range(len(again))), calls=again, bytes=sizes)
    found = None
    for index, (call, second) in enumerate(zip(slot.calls, again, strict=True)):
        # Views of inputs change with them.
        leaves = [f for f in call.leaves if not str(f.get("alias") or "").startswith(_OF_THE_CALLER)]
        differs = bench.ask("same_bytes", first=call.id, second=second, leaves=leaves)
        if differs and found is None:
            found = {"call": index, **differs}
    bench.ask("forget", sets=[], calls=again)
    last = len(slot.calls) - 1
    if found is not None and found["call"] < last and graphs:
        return {"graph": True}
    return {"shared": True} if found is None and shared else found
