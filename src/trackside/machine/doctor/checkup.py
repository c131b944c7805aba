"""One visit of the doctor: probes on this machine, the items that matter most, the record in the store."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trackside
from trackside.machine.doctor.probe import STATUSES, Finding, Probe, examine
from trackside.machine.doctor.relevant import most_relevant
from trackside.machine.doctor.script import read_script
from trackside.machine.doctor.system import System
from trackside.machine.facts import facts, fingerprint
from trackside.records.doctor import DoctorCheck, DoctorRecord, Relevant
from trackside.store.runs import RunStore

__all__ = ["Checkup", "check_up"]


@dataclass(frozen=True)
class Checkup:
    record: DoctorRecord
    findings: list[Finding]


def check_up(script: Path | None, chosen: list[Probe], store: RunStore | None = None) -> Checkup:
    """Look at this machine, and at a script if one is given; the record is stored where that is possible.

    Raises:
        TracksideError: where the script cannot be read, or is no Python.
    """
    began, started = time.monotonic(), datetime.now(UTC)
    system = System(script=read_script(script) if script else None)
    findings = examine(system, chosen)
    relevant = most_relevant(system, findings)
    counts = Counter(finding.outcome.status for finding in findings)
    store = store or RunStore()
    run = store.new_run_if_possible("doctor")
    record = DoctorRecord(
        schema="trackside.doctor/1",
        run_id=run.id if run else None,
        fingerprint=fingerprint(facts()),
        script=str(script) if script else None,
        families=sorted({finding.item.family for finding in findings}),
        counts={status: counts[status] for status in STATUSES},
        checks=[DoctorCheck(**_row(finding)) for finding in findings],
        relevant=[Relevant(item=one.item.id, title=one.item.title, because=one.because) for one in relevant],
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 3),
        version=trackside.__version__,
    )
    # A machine without room for a record is one that a doctor is called to.
    store.write_if_possible(run, record.to_dict())
    return Checkup(record, findings)


def _row(finding: Finding) -> dict[str, Any]:
    item, outcome = finding.item, finding.outcome
    return {
        "id": item.id,
        "family": item.family,
        "title": item.title,
        "about": finding.about,
        "status": outcome.status,
        "found": outcome.found,
        "wanted": outcome.wanted,
        "why": item.why,
        "fix": list(finding.fix),
        "places": list(outcome.places),
        "weight": item.weight,
    }
