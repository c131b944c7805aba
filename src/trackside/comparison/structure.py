"""What a call's outputs must look like beside the baseline's: nesting, types, shapes, memory, aliasing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trackside.comparison.arms import Call
from trackside.comparison.checks import Ledger

__all__ = ["check_structure", "overlaps", "word"]


def check_structure(ledger: Ledger, call: Call, standard: Call, name: str, reused: bool, remedy: str) -> None:
    mine, theirs = {f["path"]: f for f in call.leaves}, {f["path"]: f for f in standard.leaves}
    missing = [p for p in theirs if p not in mine]
    if missing:
        check = (
            "state-matches"
            if missing[0].startswith("state:") or missing[0].endswith(".grad")
            else "output-structure"
        )
        ledger.failed(
            check,
            f"{name}: {missing[0]} is missing; the baseline has {word(theirs[missing[0]])}{remedy}",
        )
    extra = [p for p in mine if p not in theirs]
    if extra:
        ledger.failed(
            "output-structure",
            f"{name}: {extra[0]} is {word(mine[extra[0]])}; the baseline has no such output{remedy}",
        )
    for path, fact in mine.items():
        other = theirs.get(path)
        if other is None:
            continue
        if word(fact) != word(other):
            ledger.failed(
                "output-structure",
                f"{name}: {path} is {word(fact)}; the baseline's is {word(other)}{remedy}",
            )
            continue
        if not _nested_alike(fact.get("within") or [], other.get("within") or []):
            mine_in, theirs_in = (" in a ".join(reversed(f.get("within") or ["bare"])) for f in (fact, other))
            ledger.failed(
                "output-structure",
                f"{name}: {path} is in a {mine_in}; the baseline's in a {theirs_in}{remedy}",
            )
        if fact["kind"] != "tensor":
            continue
        if other.get("requires_grad") and not fact.get("requires_grad"):
            ledger.warned(
                "output-structure",
                f"{name}: {path} carries no autograd graph; the baseline's does: a caller may call backward",
            )
        if fact.get("inference") and not other.get("inference"):
            ledger.warned(
                "output-structure",
                f"{name}: {path} is an inference tensor, the baseline's is not: autograd refuses to work "
                "with it; use `torch.no_grad()`",
            )
        for problem in _memory_problems(fact, other):
            ledger.failed("output-structure", f"{name}: {path} {problem}{remedy}")
        mine_with, theirs_with = fact.get("alias"), other.get("alias")
        if reused and {mine_with, theirs_with} <= {None, "state"}:
            # Valid until the next call: a buffer that is kept in the state is what that is for.
            continue
        if mine_with != theirs_with:
            ledger.failed(
                "aliasing",
                f"{name}: {path} shares memory with {fact.get('alias') or 'nothing'}; the "
                f"baseline's with {other.get('alias') or 'nothing'}",
            )
    ledger.passed("output-structure", "same nesting, types, dtypes, shapes and device")
    ledger.passed("aliasing", "shares memory where the baseline's does")


def _nested_alike(mine: list[str], theirs: list[str]) -> bool:
    """Whether a caller who unpacks the baseline's containers can unpack these; fields may get names."""
    return len(mine) == len(theirs) and all(
        one == other or (other == "sequence" and str(one).startswith("named tuple"))
        for one, other in zip(mine, theirs, strict=True)
    )


def _memory_problems(fact: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    if overlaps(fact) and not overlaps(other):
        yield f"is a view with strides {fact['stride']}: several elements share one place in memory"
    if not fact.get("copied", True):
        yield (
            f"could not be read: it spans {fact['span']:,} bytes, the baseline's {other['span']:,}; return a "
            "contiguous copy"
        )


def overlaps(fact: dict[str, Any]) -> bool:
    reach = 0
    for step, n in sorted((s, n) for n, s in zip(fact["shape"], fact["stride"], strict=True) if n > 1):
        if step <= reach:
            return True
        reach += (n - 1) * step
    return False


def word(fact: dict[str, Any]) -> str:
    if fact["kind"] == "tensor":
        # State may lie where an implementation wants it: fused optimizers keep their step on the GPU.
        where = "" if fact["path"].startswith("state:") else f" on {fact['device']}"
        return f"{fact['dtype']}{fact['shape']}{where}"
    if fact["kind"] == "value":
        value = fact["value"]
        if isinstance(value, dict):
            return "a float"
        # How large a number should be is for the oracle to judge: rounding alone may turn a count by one.
        name = type(value).__name__
        return f"a plain {name}" if isinstance(value, int) else f"the {name} {value!r}"
    return f"a {fact['kind']}"
