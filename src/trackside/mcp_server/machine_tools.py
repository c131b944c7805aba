"""Tools about the machine: its facts and kept ceilings, the measurement of them, and the doctor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import Field

from trackside.mcp_server.answers import Ceiling, Finding, Findings, Machine
from trackside.mcp_server.inline import run_inline
from trackside.mcp_server.reply import Detail
from trackside.mcp_server.scope import Scope
from trackside.records.errors import TracksideError

__all__ = ["MachineTools", "doctor_findings"]

_GIB = 1 << 30
# Worst first, as the doctor's own record has them.
_TOLD = ("fail", "warn")
_TOLD_IN_FULL = ("fail", "warn", "unknown")
# A probe that hangs is a finding for the person at the machine, and nothing to wait for.
_DOCTOR_SECONDS = 120.0


class MachineTools:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        # Doctors take turns: many at once would load the machine beside a measurement.
        self._doctor = anyio.Lock()

    def machine_get(self, detail: Detail = "concise") -> Machine:
        """What this machine is, and the speeds measured on it (bandwidth, FLOP/s, latencies). Use it first,
        to know what a program can reach here. Without ceilings, ceilings_start measures them."""
        from trackside.machine.facts import facts, fingerprint

        here = facts()
        kept = self._kept(fingerprint(here))
        cpu = here.cpu
        quota = f", quota {here.limits.cpu_quota:g}" if here.limits.cpu_quota else ""
        isa = f"; {' '.join(cpu.isa)}" if detail == "full" else ""
        software = {name: str(value) for name, value in asdict(here.software).items() if value}
        return Machine(
            run=next((one.run for one in kept if one.run), None) or "",
            fingerprint=fingerprint(here),
            cpu=f"{cpu.model}, {cpu.cores} cores, {len(cpu.allowed)} usable{quota}{isa}",
            memory=f"{here.memory.total_bytes / _GIB:.1f} GiB" if here.memory.total_bytes else "unknown",
            gpus=[f"cuda:{gpu.index} {gpu.name}, driver {gpu.driver}" for gpu in here.gpus],
            software=software,
            unknown=[f"{one.what}: {one.why}" for one in here.unknown],
            rows=kept,
            links=[f"runs://{run}" for run in dict.fromkeys(one.run for one in kept) if run],
            next="" if kept else "no ceilings are kept for this machine: ceilings_start measures them",
        )

    async def doctor_run(
        self,
        ctx: Context[Any, Any],
        script: Annotated[str, Field(description="also read this script; it is not run")] = "",
        family: Annotated[
            str, Field(pattern="^[a-z-]*$", max_length=80, description="only this family, e.g. memory")
        ] = "",
        detail: Detail = "concise",
    ) -> Findings:
        """What is wrong with this machine's set-up, and with a script, by the checklist; takes seconds and
        changes nothing. Use it when figures look poor for the hardware, or before training."""
        words = ["doctor", "--json"]
        words += ["--family", family] if family else []
        words += [str(self._scope.file(script))] if script else []
        async with self._doctor:
            record = await run_inline(self._scope, words, ctx, "probing", _DOCTOR_SECONDS)
        return doctor_findings(record, detail)

    def _kept(self, fingerprint: str) -> list[Ceiling]:
        """Each speed at its best, with the run that measured it."""
        from trackside.machine.ceilings import KEPT
        from trackside.store.files import read_json

        best: dict[tuple[str, str], Ceiling] = {}
        for path in sorted((self._scope.store.root / "machine").glob(f"{KEPT}{fingerprint}-*.json")):
            try:
                # No link and no pipe: the folder may have come with a download.
                record = read_json(path, links=False)
                for row in record["ceilings"]:
                    one = Ceiling(
                        place=row["place"],
                        name=row["name"],
                        value=row["value"],
                        unit=row["unit"],
                        n=row["n"],
                        spread=row["spread"],
                        run=record.get("run_id"),
                        day=str(record["measured_at"])[:10],
                    )
                    known = best.setdefault((one.place, one.name), one)
                    # Of times the shorter is the better.
                    lower = one.unit in ("µs", "ns")
                    if (one.value < known.value) if lower else (one.value > known.value):
                        best[one.place, one.name] = one
            except (OSError, TracksideError, KeyError, TypeError, ValueError):
                continue  # kept figures only help: those that cannot be read do not
        return list(best.values())


def doctor_findings(record: dict[str, Any], detail: Detail) -> Findings:
    """The checks that are not well, worst first."""
    told = _TOLD if detail == "concise" else _TOLD_IN_FULL
    checks = [check for check in record["checks"] if check["status"] in told]
    rows = [
        Finding(
            id=check["id"],
            title=check["title"],
            status=check["status"],
            evidence=[f"found {check['found']}; wanted {check['wanted']}", *check["places"][:3]],
            fix="\n".join(check["fix"]) if detail == "full" else next(iter(check["fix"]), ""),
            item=f"handbook://{check['id']}",
        )
        for check in checks
    ]
    counts = ", ".join(f"{count} {status}" for status, count in record["counts"].items())
    run = record.get("run_id") or ""
    return Findings(
        run=run,
        verdict=f"{len(record['checks'])} checks: {counts}",
        rows=rows,
        links=[*([f"runs://{run}"] if run else []), *(row.item for row in rows[:3] if row.item)],
        next="the checks' fixes are suggestions for the person: do not change the machine unasked"
        if rows
        else "",
    ).of(len(checks))
