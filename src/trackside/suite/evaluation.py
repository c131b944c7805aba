"""One entry of a suite evaluated by children: a comparison with its baseline, or the pace of its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from trackside.comparison.crew import default_threads
from trackside.machine.facts import MachineFacts
from trackside.records.check import Change, CheckItem, ItemStatus
from trackside.suite.accepted import AcceptedFile, accept, incomparable, judge, machine_kind, reference_digest
from trackside.suite.child import Child, Ended
from trackside.suite.not_here import not_here
from trackside.suite.pace import Pace, ShapePace
from trackside.suite.suite_file import Entry

__all__ = [
    "comparable_here",
    "error_item",
    "item_of",
    "read_comparison",
    "read_pace",
    "start_correctness",
    "start_timing",
]

# The verdicts of a comparison whose claim does not hold.
_STATUS: Final[dict[str, ItemStatus]] = {
    "not-comparable": "not-comparable",
    "inconclusive": "inconclusive",
}
ACCEPTED_CLAIM: Final = "no slower than accepted"


def start_timing(entry: Entry, store: Path) -> Child:
    """The child that times an entry; it waits for the device, and holds it."""
    home = {"TRACKSIDE_HOME": str(store)}
    if entry.mode == "accepted":
        return Child(["-P", "-m", "trackside.suite.pace", orjson.dumps(entry.to_dict()).decode()], home)
    words = ["--device", entry.device, "--metric", entry.metric, "--claim", entry.claim]
    words += ["--budget", f"{entry.budget:g}", "--build-timeout", f"{entry.build_timeout:g}"]
    for name in ("delta", "pairs", "threads"):
        value = getattr(entry, name)
        if value is not None:
            words += [f"--{name}", f"{value:g}"]
    # After `--`: a file's name may begin with a hyphen.
    files = ["--", str(entry.baseline), str(entry.candidate)]
    return Child(["-P", "-m", "trackside", "compare", "--json", *words, *files], home)


def start_correctness(entry: Entry, scratch: Path) -> Child:
    """The niced child that checks an entry without timing it; its record stays in the scratch folder."""
    options = {
        "baseline": str(entry.baseline),
        "candidate": str(entry.candidate),
        "device": entry.device,
        "build_timeout": entry.build_timeout,
        "threads": entry.threads,
        "store": str(scratch),
    }
    return Child(["-P", "-m", "trackside.suite.correctness", orjson.dumps(options).decode()])


def item_of(entry: Entry, status: ItemStatus, **more: Any) -> CheckItem:
    """An item with what the entry says of itself."""
    against = entry.mode == "baseline"
    return CheckItem(
        name=entry.name,
        mode=entry.mode,
        status=status,
        claim=entry.claim if against else ACCEPTED_CLAIM,
        delta=more.pop("delta", entry.threshold),
        device=entry.device,
        baseline=str(entry.baseline),
        candidate=str(entry.candidate) if against else None,
        reference=None if entry.reference is None else str(entry.reference),
        **more,
    )


def error_item(entry: Entry, error: Mapping[str, str], seconds: float) -> CheckItem:
    """An entry that came to no result."""
    status: ItemStatus = "not-comparable" if not_here(error["kind"], entry.device) else "error"
    reason = f"{error['kind']}: {error['message']}"
    if error["remedy"]:
        reason += f" ({error['remedy']})"
    return item_of(entry, status, reasons=[reason], seconds=seconds)


def read_comparison(entry: Entry, ended: Ended, seconds: float) -> CheckItem:
    """What a comparison says of an entry."""
    error = ended.error
    if error is not None:
        return error_item(entry, error, seconds)
    record = ended.document
    speed = record.get("speedup")
    change = None
    if speed is not None:
        change = Change(**{name: speed[name] for name in ("ratio", "low", "high", "confidence")})
    timings = {
        arm: found["device"]
        for arm in ("baseline", "candidate")
        if "device" in (found := record["timings"].get(arm, {}))
    }
    return item_of(
        entry,
        "holds" if record["holds"] else _STATUS.get(record["verdict"], "failed"),
        verdict=record["verdict"],
        delta=record["statistics"].get("delta", entry.threshold),
        change=change,
        reasons=record["reasons"],
        run_id=record["run_id"],
        timings=timings,
        seconds=seconds,
    )


def read_pace(
    entry: Entry,
    ended: Ended,
    accepted: AcceptedFile,
    machine: MachineFacts,
    seconds: float,
    accepting: bool = False,
) -> CheckItem:
    """What a pace says beside the accepted one; when `accepting`, the file's entry is replaced by it."""
    error = ended.error
    if error is not None:
        return error_item(entry, error, seconds)
    found = ended.document
    pace = Pace(**found | {"shapes": [ShapePace(**shape) for shape in found["shapes"]]})
    assert entry.reference is not None
    assert entry.threshold is not None
    kind = machine_kind(machine, entry.device, pace.threads)
    digest = reference_digest(entry.reference)
    timings = {
        "shapes": [
            {
                "shape": shape.shape,
                "file_us": shape.file_us,
                "reference_us": shape.reference_us,
                "pairs": len(shape.log_ratios),
                "quads": shape.quads,
                "quads_kept": shape.quads_kept,
                "disturbed_share": shape.disturbed_share,
            }
            for shape in pace.shapes
        ]
    }
    if accepting:
        if pace.disturbed:
            return item_of(
                entry,
                "inconclusive",
                reasons=[f"{pace.disturbed}: nothing was accepted, run it again on a quieter machine"],
                timings=timings,
                seconds=seconds,
            )
        made = accept(entry, pace, kind, digest)
        accepted.put(entry.name, made)
        told = [
            f"{shape['ratio']:.4g} times the reference [{shape['low']:.4g}, {shape['high']:.4g}], "
            f"{shape['pairs']} pairs"
            for shape in made["shapes"]
        ]
        return item_of(entry, "accepted", reasons=[*told, *pace.notes], timings=timings, seconds=seconds)
    judgement = judge(accepted.entries(entry.name), pace, kind, digest, entry.threshold)
    statuses: dict[str, ItemStatus] = {
        "unchanged": "holds",
        "faster": "holds",
        "slower": "failed",
        "inconclusive": "inconclusive",
        "not-comparable": "not-comparable",
    }
    return item_of(
        entry,
        statuses[judgement.outcome],
        verdict=judgement.outcome,
        change=max(judgement.changes, key=lambda change: change.ratio, default=None),
        changes=judgement.changes if len(judgement.changes) > 1 else [],
        reasons=judgement.reasons,
        timings=timings,
        seconds=seconds,
    )


def comparable_here(entry: Entry, accepted: AcceptedFile | None, machine: MachineFacts) -> str | None:
    """Why timing an entry would be in vain, nothing being accepted on this kind of machine; else None."""
    if accepted is None or entry.mode != "accepted" or entry.reference is None:
        return None
    threads = default_threads(entry.kind) if entry.threads is None else entry.threads
    return incomparable(
        accepted.entries(entry.name),
        machine_kind(machine, entry.device, threads),
        reference_digest(entry.reference),
    )
