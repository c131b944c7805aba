"""Stores with past runs for a server to tell of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.report.profile_records import cpu_program, gpu_training, hostile

from trackside.records.check import CheckRecord
from trackside.records.compare import CompareRecord
from trackside.records.doctor import DoctorRecord
from trackside.store.runs import RunStore

__all__ = ["PAST", "filled", "keep", "rejected"]

PAST = ("cpu", "gpu", "rejected", "doctor")
SOURCE = cpu_program().sources["loop.py"]


def rejected() -> CompareRecord:
    return CompareRecord(
        schema="trackside.compare/1",
        verdict="rejected",
        certified=False,
        certificate="none",
        claim="faster",
        holds=False,
        speedup=None,
        checks=[
            {"id": "output-matches-oracle", "status": "fail", "detail": "call 42: expected 1, found 2"},
            {"id": "late-writes", "status": "unknown", "detail": "not reached: the verdict was known before"},
            {"id": "input-unchanged", "status": "pass", "detail": "all bytes as they were"},
        ],  # type: ignore[arg-type]
        reasons=["output-matches-oracle: call 42: expected 1, found 2"],
        started="2026-11-16T14:22:05+00:00",
        seconds=4.0,
        version="0.1.0",
    )


def _doctor() -> DoctorRecord:
    return DoctorRecord(
        schema="trackside.doctor/1",
        fingerprint="22fd3c3626e73cfc",
        script=None,
        families=["os"],
        counts={"fail": 1, "warn": 0, "unknown": 0, "pass": 1, "not_applicable": 0},
        checks=[
            {
                "id": "os.nofile",
                "family": "os",
                "title": "Raise the limit of open files",
                "about": "machine",
                "status": status,
                "found": "1,024",
                "wanted": "at least 65,536",
                "why": "loaders hold many",
                "fix": ["ulimit -n 65536"],
                "places": [],
                "weight": 2,
            }
            for status in ("fail", "pass")
        ],  # type: ignore[list-item]
        relevant=[],
        started="2026-11-16T14:22:05+00:00",
        seconds=0.4,
        version="0.1.0",
    )


def _check() -> CheckRecord:
    asked = {"mode": "baseline", "claim": "not-slower", "device": "cpu", "baseline": "a.py"}
    return CheckRecord(
        schema="trackside.check/1",
        verdict="failed",
        exit_code=1,
        counts={"failed": 1, "holds": 1},
        suite="suite.toml",
        items=[
            {"name": "matmul", "status": "holds", "verdict": "faster", **asked},
            {
                "name": "softmax",
                "status": "failed",
                "verdict": "slower",
                "change": {"ratio": 0.8, "low": 0.78, "high": 0.82},
                "reasons": ["it is slower than the claim allows"],
                "run_id": "c-1",
                **asked,
            },
        ],  # type: ignore[list-item]
        started="2026-11-16T14:22:05+00:00",
        seconds=4.0,
        version="0.1.0",
    )


def keep(root: Path, verb: str, record: Any) -> str:
    """Stores a record as a run of its own."""
    store = RunStore(root)
    run = store.new_run(verb)
    store.write_record(run, record.to_dict() | {"run_id": run.id})
    return run.id


def filled(folder: Path) -> dict[str, str]:
    """A project with a file that was profiled, and runs of every kind; their ids by name."""
    (folder / "loop.py").write_text("\n".join(SOURCE) + "\n")
    root = folder / ".trackside"
    return {
        "hostile": keep(root, "profile", hostile()),
        "gpu": keep(root, "profile", gpu_training()),
        "cpu": keep(root, "profile", cpu_program()),
        "check": keep(root, "check", _check()),
        "rejected": keep(root, "compare", rejected()),
        "doctor": keep(root, "doctor", _doctor()),
    }
