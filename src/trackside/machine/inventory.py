"""Everything that can be read about this machine, as one record in the store."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import trackside
from trackside.machine.facts import facts, fingerprint
from trackside.machine.gpu_state import read_gpus
from trackside.machine.surroundings import surroundings
from trackside.machine.system_files import Unknown
from trackside.records.machine import MachineRecord
from trackside.store.runs import RunStore

__all__ = ["take_inventory"]


def take_inventory(store: RunStore | None = None) -> MachineRecord:
    """Read the machine; the record is stored where that is possible, else the store remarks on it."""
    here = facts()
    around = surroundings(here)
    states = read_gpus()
    unknown = {(one.what, one.why) for one in (*here.unknown, *around.unknown)}
    if isinstance(states, Unknown):
        unknown.add((states.what, states.why))
    store = store or RunStore()
    run = store.new_run_if_possible("machine")
    shown = asdict(here) | asdict(around)
    now = {} if isinstance(states, Unknown) else {state["index"]: state for state in states}
    for gpu in shown["gpus"]:
        gpu["state"] = now.get(gpu["index"], {})
    record = MachineRecord(
        **shown
        | {
            "schema": "trackside.machine/1",
            "run_id": run.id if run else None,
            "fingerprint": fingerprint(here),
            "unknown": [{"what": what, "why": why} for what, why in sorted(unknown)],
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": trackside.__version__,
        }
    )
    # What a machine is can be said where nothing can be stored.
    store.write_if_possible(run, record.to_dict())
    return record
