"""Everything that can be read about this machine, as one record in the store."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from datetime import UTC, datetime

import trackside
from trackside.machine.facts import facts
from trackside.machine.gpu_state import read_gpus
from trackside.machine.surroundings import surroundings
from trackside.machine.system_files import Unknown
from trackside.records.errors import TracksideError
from trackside.records.machine import MachineRecord
from trackside.store.runs import RunStore

__all__ = ["take_inventory"]


def take_inventory(store: RunStore | None = None) -> MachineRecord:
    """Read the machine; the record is stored where that is possible."""
    here = facts()
    around = surroundings(here)
    states = read_gpus()
    unknown = {(one.what, one.why) for one in (*here.unknown, *around.unknown)}
    if isinstance(states, Unknown):
        unknown.add((states.what, states.why))
    store = store or RunStore()
    run = store.new_run_if_possible("machine")
    shown = here.to_record()
    record = MachineRecord(
        schema="trackside.machine/1",
        run_id=run.id if run else None,
        fingerprint=shown.pop("fingerprint"),
        facts={name: value for name, value in shown.items() if name != "unknown"},
        surroundings={name: value for name, value in asdict(around).items() if name != "unknown"},
        gpu_states=[] if isinstance(states, Unknown) else states,
        unknown=[{"what": what, "why": why} for what, why in sorted(unknown)],
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        version=trackside.__version__,
    )
    if run is not None:
        # What a machine is can be said where nothing can be stored.
        with contextlib.suppress(TracksideError):
            store.write_record(run, record.to_dict())
    return record
