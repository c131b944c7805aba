"""The fields that other programs rely on, in the documents that the verbs print."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def document(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "trackside", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_machine_has_the_fields_that_others_rely_on(tmp_path: Path) -> None:
    found = document(tmp_path, "machine")
    assert {"fingerprint", "cpu", "gpus", "software", "unknown"} <= found.keys()
    assert all({"what", "why"} <= one.keys() for one in found["unknown"])


def test_doctor_has_the_fields_that_others_rely_on(tmp_path: Path) -> None:
    checks = document(tmp_path, "doctor", "--family", "os")["checks"]
    assert checks
    for check in checks:
        assert {"id", "family", "status", "found", "wanted", "why", "fix"} <= check.keys()
        assert check["status"] in ("pass", "warn", "fail", "unknown", "not_applicable")
