"""Every tool, with the least that it can be called with."""

from __future__ import annotations

from typing import Any

__all__ = ["DEFAULTS", "JOBS", "REFUSED"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "machine_get": {},
    "doctor_run": {},
    "runs_list": {},
    "hotspots_list": {},
    "kernels_list": {},
    "findings_list": {},
    "runs_diff": {"before": "GPU"},
    "handbook_search": {"query": "pinned memory"},
    "source_read": {"file": "loop.py"},
}
"""Tools that read, with the least that they can be called with; the rest needs --allow-exec, or a job."""
REFUSED = {
    "profile_start": {"script": "loop.py"},
    "compare_start": {"baseline": "loop.py", "candidate": "loop.py"},
    "ceilings_start": {},
    "job_cancel": {"job": "last"},
}
JOBS = {"job_get": {}}
