"""The record of a comparison, from what each shape ended with."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

import trackside
from trackside.comparison import tolerance
from trackside.comparison.checks import Ledger
from trackside.comparison.measure import Measurement
from trackside.comparison.options import CERTIFIED_PAIRS, Options
from trackside.comparison.study import Study
from trackside.comparison.timings import summarise
from trackside.comparison.verdict import Reading, ratios, worst_of
from trackside.machine.facts import MachineFacts, fingerprint
from trackside.records.compare import CompareRecord
from trackside.records.errors import printable
from trackside.store.runs import Run
from trackside.workload.formats import FileFacts

__all__ = ["Context", "Outcome", "build_record", "grade", "save_quads", "unstarted_record"]


@dataclass
class Context:
    """What a run's record says beside its outcomes."""

    baseline: FileFacts
    candidate: FileFacts
    machine: MachineFacts
    threads: int
    cpus: list[int]
    began: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    telemetry: dict[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """What one shape ended with."""

    shape: Any
    verdict: str
    reasons: list[str]
    ledger: Ledger
    study: Study | None = None
    measurement: Measurement | None = None
    reading: Reading | None = None
    floor: dict[str, Any] | None = None
    base_alone: dict[str, float] = field(default_factory=dict)


def build_record(
    options: Options, run: Run, context: Context, outcomes: list[Outcome], failure: str | None = None
) -> CompareRecord:
    """The record of a run; `failure` says why it ended without a verdict."""
    shapes = [_shape_record(o) for o in outcomes]
    verdict = worst_of([o.verdict for o in outcomes]) if failure is None else "inconclusive"
    # Of several shapes with that verdict, the one with the smallest ratio speaks for the run.
    alike = [s for s, o in zip(shapes, outcomes, strict=True) if o.verdict == verdict]
    main = min(alike, key=lambda s: s["speedup"]["ratio"] if s["speedup"] else 0.0, default=None)
    certificate = grade(options, outcomes, verdict) if failure is None else "none"
    holds = verdict == "faster" or (options.claim == "not-slower" and verdict == "equivalent")
    return CompareRecord.model_validate(
        _plain(
            {
                "run_id": run.id,
                "status": "done" if failure is None else "failed",
                "verdict": verdict,
                "certified": certificate != "none",
                "certificate": certificate,
                "claim": options.claim,
                "holds": holds,
                "speedup": main["speedup"] if main else None,
                "checks": main["checks"] if main else [],
                "reasons": [failure] if failure is not None else (main or {}).get("reasons", []),
                "accuracy": main["accuracy"] if main else {},
                "timings": main["timings"] if main else {},
                "memory": main["memory"] if main else {},
                "floor": main["floor"] if main else None,
                "statistics": main["statistics"] if main else {},
                "shapes": shapes if len(shapes) > 1 or (shapes and shapes[0]["shape"] is not None) else [],
                "baseline": {
                    "path": str(context.baseline.path),
                    "format": context.baseline.format,
                    "sha256": context.baseline.sha256,
                    "files": context.baseline.files,
                },
                "candidate": {
                    "path": str(context.candidate.path),
                    "format": context.candidate.format,
                    "sha256": context.candidate.sha256,
                    "files": context.candidate.files,
                },
                "environment": {
                    "fingerprint": fingerprint(context.machine),
                    "device": options.device,
                    "threads": context.threads,
                    "cpus": context.cpus,
                    "cpu": context.machine.cpu.model,
                    "gpus": [g.name for g in context.machine.gpus],
                    "kernel": context.machine.kernel,
                    "software": asdict(context.machine.software),
                    "folder": os.getcwd(),
                    "flags": outcomes[0].study.flags if outcomes and outcomes[0].study else {},
                },
                "telemetry": context.telemetry,
                "options": options.to_record(),
                "started": context.started,
                "seconds": time.monotonic() - context.began,
                "version": trackside.__version__,
            }
        )
    )


def grade(options: Options, outcomes: list[Outcome], verdict: str) -> str:
    """How much the certificate is worth: `full`, `reduced` or `none`."""
    if (
        options.quick
        or (options.pairs is not None and options.pairs < CERTIFIED_PAIRS)
        or options.checks_only
        or options.disabled
        or options.unprotected
        or verdict not in ("faster", "slower", "equivalent")
    ):
        return "none"
    lowering = (
        "isolation",
        "output-structure",
        "task-is-sensitive",
        "holds-on-probes",
        "oracle-available",
        "machine-quiet",
        "clocks-agree",
    )
    results = [o.ledger.results.get(name) for o in outcomes for name in lowering]
    # Without state there is nothing to see.
    results += [o.ledger.results["state-matches"] for o in outcomes if "state-matches" in o.ledger.results]
    if options.seed is not None or any(r is None or r.status in ("warn", "unknown") for r in results):
        return "reduced"
    return "full"


def save_quads(folder: Path, outcomes: list[Outcome]) -> None:
    """Keep the raw quads of every shape that was timed."""
    if any(o.measurement for o in outcomes):
        data = [
            {
                "shape": o.shape,
                "plan": asdict(o.measurement.plan),
                "pairs": [[q.to_record() for q in p.quads] for p in o.measurement.pairs],
                "first": [p.first for p in o.measurement.pairs],
            }
            for o in outcomes
            if o.measurement
        ]
        (folder / "quads.json").write_bytes(orjson.dumps(data))


def _shape_record(o: Outcome) -> dict[str, Any]:
    speedup = None
    statistics: dict[str, Any] = {}
    if o.reading is not None and o.measurement is not None:
        r, plan = o.reading, o.measurement.plan
        judge = ratios(r.judge) if r.judge is not None else {}
        speedup = {
            **ratios(r.speed),
            "confidence": r.speed.confidence,
            "metric": plan.metric,
            "bounded": judge.get("ratio"),
            "bounded_low": judge.get("low"),
            "bounded_high": judge.get("high"),
            "lie_us": r.lie_us,
        }
        statistics = {
            "pairs": len(o.measurement.pairs),
            "quads": r.quads,
            "quads_kept": r.kept,
            "calls_per_slot": plan.batch,
            "delta": plan.delta,
            "longer": round(r.longer(plan.delta)),
            "total": ratios(r.total),
            "wall": ratios(r.wall) if r.wall else None,
            "device": ratios(r.device) if r.device else None,
            "candidate_calls": o.measurement.calls,
            "flushes": plan.flushes,
            "paced": plan.paced,
            "host_bound": o.measurement.host_bound,
        }
    study = o.study
    accuracy: dict[str, Any] = {}
    if study is not None:
        accuracy = {
            "oracle": study.oracle.get("kind"),
            "checked_calls": study.checked,
            "screened_calls": study.screened,
            "probes": study.probes,
            "outputs": [
                {
                    "path": path,
                    "baseline": tolerance.relative_error(study.whole_bins.get(path, bins)),
                    "candidate": tolerance.relative_error(study.candidate_bins[path])
                    if path in study.candidate_bins
                    else None,
                }
                for path, bins in list(study.bins.items())[:50]
            ],
        }
    timings, memory = summarise(o.measurement, o.base_alone) if o.measurement is not None else ({}, {})
    return {
        "shape": o.shape,
        "verdict": o.verdict,
        "speedup": speedup,
        "checks": o.ledger.to_records(),
        "reasons": o.reasons,
        "accuracy": accuracy,
        "timings": timings,
        "memory": memory,
        "floor": o.floor,
        "statistics": statistics,
    }


def _plain(value: Any) -> Any:
    """Text that JSON can hold: a file name need not be UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def unstarted_record(options: Options, run: Run, reason: str) -> CompareRecord:
    """The record of a comparison whose files could not be read."""
    return CompareRecord.model_validate(
        {
            "run_id": run.id,
            "status": "failed",
            "verdict": "inconclusive",
            "certified": False,
            "certificate": "none",
            "claim": options.claim,
            "holds": False,
            "speedup": None,
            "checks": [],
            "reasons": [printable(reason)],
            "options": _plain(options.to_record()),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "version": trackside.__version__,
        }
    )
