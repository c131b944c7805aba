"""`trackside ceilings`, as the real program."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from trackside.machine.ceiling_suite.suite import Options, measured_ceilings

Trackside = Callable[..., subprocess.CompletedProcess[str]]


def test_kept_figures_are_shown_with_their_day_and_in_one_document(
    trackside: Trackside, home: Path, tmp_path: Path
) -> None:
    record = measured_ceilings(Options(("disk",), tmp_path, store=home, scale=0.07))
    done = trackside("ceilings", "disk")
    assert (done.returncode, done.stderr) == (0, "")
    assert "sequential read" in done.stdout
    assert f"kept from {record.measured_at}" in done.stdout
    document = json.loads(trackside("ceilings", "disk", "--json").stdout)
    assert (document["schema"], document["cached"]) == ("trackside.ceilings/1", True)
    shown = trackside("runs", "show", "last")
    assert "sequential read" in shown.stdout


def test_an_unknown_place_is_wrong_use(trackside: Trackside) -> None:
    done = trackside("ceilings", "tpu")
    assert done.returncode == 2
    assert "needed: cpu, disk, cuda or cuda:N" in done.stderr
