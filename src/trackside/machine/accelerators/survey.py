"""The answer to `which accelerator?`: rows of the sheet with their bounds, the best for a purpose first."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from trackside.machine.accelerators.bounds import (
    Model,
    decode_rate,
    devices_needed,
    prefill_seconds,
    ridge,
)
from trackside.machine.accelerators.here import Present
from trackside.machine.accelerators.sheet import Accelerator, accelerators
from trackside.machine.system_files import Unknown

__all__ = ["Purpose", "survey"]

Purpose = Literal["decode", "prefill"]


def survey(
    rows: Sequence[Accelerator],
    *,
    purpose: Purpose | None = None,
    dtype: str = "bf16",
    model: Model | None = None,
    tokens: int = 1000,
    here: Sequence[Present] = (),
    unknown: Sequence[Unknown] = (),
) -> dict[str, Any]:
    """A document of schema `trackside.gpus/1`.

    Args:
        rows: what to compare.
        purpose: decode is bound by memory bandwidth, prefill by dense FLOP/s; None sorts as decode does.
        dtype: of the arithmetic.
        model: adds bounds; rows whose memory holds its weights come first.
        tokens: length of the prompt of the prefill bound.
        here: this machine's GPUs.
        unknown: why they could not be seen.
    """
    entries = [_entry(row, dtype, model, tokens, here) for row in rows]
    field, entries = _sorted(entries, purpose, dtype, model)
    return {
        "schema": "trackside.gpus/1",
        "purpose": purpose,
        "dtype": dtype,
        "model": None if model is None else {**asdict(model), "tokens": tokens},
        "sorted_by": field,
        "total": len(accelerators()),
        "shown": len(entries),
        "accelerators": entries,
        "here": [{"device": p.device, "name": p.name, "accelerator": p.accelerator} for p in here],
        "unknown": [asdict(one) for one in unknown],
    }


def _entry(
    row: Accelerator, dtype: str, model: Model | None, tokens: int, here: Sequence[Present]
) -> dict[str, Any]:
    ridges = {name: ridge(row, name) for name in row.dense}
    return {
        "name": row.name,
        "vendor": row.vendor,
        "architecture": row.architecture,
        "memory_type": row.memory_type,
        "aliases": list(row.aliases),
        "note": row.note or None,
        "figures": {name: asdict(figure) for name, figure in row.figures().items()},
        "ridge_flop_per_byte": {name: value for name, value in ridges.items() if value is not None},
        "bounds": None if model is None else _bounds(row, model, tokens),
        "here": [
            {"device": p.device, "name": p.name, "measured": [_beside(row, m) for m in p.measured]}
            for p in here
            if p.accelerator == row.name
        ],
    }


def _bounds(row: Accelerator, model: Model, tokens: int) -> dict[str, Any]:
    needed = devices_needed(row, model)
    return {
        "fits": None if needed is None else needed == 1,
        "devices_needed": needed,
        "decode_tokens_per_s": decode_rate(row, model),
        "prefill_s": prefill_seconds(row, model, tokens),
    }


def _beside(row: Accelerator, measured: dict[str, Any]) -> dict[str, Any]:
    share = measured["value"] / row.bandwidth.value if row.bandwidth else None
    return {**measured, "share_of_sheet": share}


def _sorted(
    entries: list[dict[str, Any]], purpose: Purpose | None, dtype: str, model: Model | None
) -> tuple[str, list[dict[str, Any]]]:
    """The figure that counts for a purpose, and the entries in its order; those without it come last."""
    field = f"dense.{dtype}" if purpose == "prefill" else "bandwidth"

    def rank(entry: dict[str, Any]) -> tuple[bool, bool, float, str]:
        figure = entry["figures"].get(field)
        value = figure["value"] if figure else 0.0
        unfit = model is not None and not entry["bounds"]["fits"]
        return (figure is None, unfit, -value, entry["name"])

    return field, sorted(entries, key=rank)
