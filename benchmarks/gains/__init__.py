"""Are predicted gains true? Broken programs against their repaired twins, by `compare`.

`pairs/` holds both as workloads; the first word of a docstring names the rule. Predictions are a part of
their own (`gains.predictions`) and are committed before this one is run: it measures only pairs that have
one, made by the same rules, and changes none.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.context import Bar, Compared, Context, Outcome, compare
from benchmarks.gains.predictions import PAIRS, known_rows, repaired, rules_sha256, told

__all__ = ["run"]

WANTED = 0.8
_WIDEST = 0.05
_PAIR_SECONDS = 60


def run(context: Context) -> Outcome:
    path = context.folder / "gains.predictions.json"
    if not path.exists():
        return Outcome([], {}, False, ["there is no prediction: run --part gains.predictions first"])
    predictions = json.loads(path.read_text())
    if predictions["data"]["rules_sha256"] != rules_sha256():
        return Outcome([], {}, False, ["the predictions were made by other rules: predict again"])
    rows = known_rows(context, "gains")
    complete = bool(predictions["complete"])
    # As the program was profiled.
    threads = ("--threads", "1") if context.kind == "cpu" else ()
    with tempfile.TemporaryDirectory(prefix="trackside-gains-") as scratch:
        for row in predictions["data"]["rows"]:
            if context.pair not in (None, row["pair"]):
                continue
            if context.left() < _PAIR_SECONDS:
                complete = False
                break
            broken = PAIRS / context.kind / f"{row['pair']}_broken.py"
            store = Path(scratch) / row["pair"]
            seen = compare(context, broken, repaired(broken), store, "--metric", "wall", *threads)
            rows.append({name: row[name] for name in ("pair", "rule", "gain")} | realised(row["gain"], seen))
            context.say(f"  {row['pair']}: {_outcome(rows[-1])}")
            context.save("gains-so-far", Outcome([], {"rows": rows}, False, excused=True))
    (context.folder / "gains-so-far.json").unlink(missing_ok=True)
    rows.sort(key=lambda row: str(row["pair"]))
    return Outcome(
        _bars(rows, complete),
        {"predicted": predictions["date"], "predicted_at": predictions["commit"], "rows": rows},
        complete,
        [f"{row['pair']} ({row['rule']}): {_outcome(row)}" for row in rows],
        excused=not complete,
    )


def realised(gain: dict[str, float] | None, seen: Compared) -> dict[str, Any]:
    """What the repair saved of a call, and whether that was foretold."""
    speed = (seen.document or {}).get("speedup")
    if not speed:
        return {"verdict": seen.verdict, "realised": None, "inside": False, "error": seen.error}
    saved = 1 - 1 / speed["ratio"]
    return {
        "verdict": seen.verdict,
        "realised": saved,
        "realised_low": 1 - 1 / speed["low"],
        "realised_high": 1 - 1 / speed["high"],
        "inside": gain is not None and gain["low"] <= saved <= gain["high"],
    }


def _bars(rows: list[dict[str, Any]], complete: bool) -> list[Bar]:
    if not rows:
        return []
    found = sum(row["gain"] is not None for row in rows)
    inside = sum(row["inside"] for row in rows)
    gains = [row["gain"] for row in rows if row["gain"] is not None]
    narrow = sum(gain["high"] - gain["low"] <= max(_WIDEST, gain["mid"]) + 1e-9 for gain in gains)
    wrong = sum(row["verdict"] in ("rejected", "error") for row in rows)
    return [
        Bar("a planted problem is found", "all", f"{found} of {len(rows)}", found == len(rows)),
        Bar("repaired twins compute the same", "all", f"{len(rows) - wrong} of {len(rows)}", wrong == 0),
        Bar(
            "ranges are no wider than 5 points or the gain",
            "all",
            f"{narrow} of {len(gains)}",
            narrow == len(gains),
        ),
        Bar(
            "the realised gain lies in the predicted range",
            f"≥ {WANTED:.0%}",
            f"{inside} of {len(rows)}",
            inside >= WANTED * len(rows) if complete else None,
        ),
    ]


def _outcome(row: dict[str, Any]) -> str:
    if row["realised"] is None:
        return f"{told(row['gain'])}; {row['verdict']}, not measured"
    side = "inside" if row["inside"] else "OUTSIDE"
    return (
        f"{told(row['gain'])}, realised {row['realised']:.1%} "
        f"[{row['realised_low']:.1%}, {row['realised_high']:.1%}], {side} ({row['verdict']})"
    )
