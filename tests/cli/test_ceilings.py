"""`trackside ceilings`, as the real program."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.processes import holding_process

from trackside.machine.ceiling_suite.suite import Options, measured_ceilings
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore

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


@pytest.mark.parametrize("days", ["inf", "1e12", "nan", "-1", "-inf"])
def test_an_age_that_is_none_is_wrong_use(trackside: Trackside, days: str) -> None:
    done = trackside("ceilings", "disk", "--age", days)
    assert done.returncode == 2
    assert f"found --age {float(days):g}" in done.stderr
    assert "needed: 0 to 36500 days" in done.stderr


def test_a_folder_that_cannot_be_measured_is_refused_before_a_lock_or_a_run_is_taken(
    trackside: Trackside, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with DeviceLock("cpu", verb="compare"):
        for folder, why in (("nowhere", "No such file"), ("file", "it is not a folder")):
            done = trackside("ceilings", "disk", "--fresh", "--folder", folder)
            assert done.returncode == 2
            assert f"cannot measure the disk of {tmp_path}/{folder}: {why}" in done.stderr
            assert "name a folder" in done.stderr
    assert RunStore(home).list() == []


@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_who_holds_the_cpu_is_told_to_those_who_wait(place: str, home: Path, tmp_path: Path) -> None:
    # Held by another than the one that starts it: what runs below a measurement is part of it.
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    with holding_process("cpu", locks) as holder:
        waiting = subprocess.Popen(
            [sys.executable, "-m", "trackside", "ceilings", place],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"COLUMNS": "200", "TRACKSIDE_LOCKS": str(locks)},
        )
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        waiting.terminate()
        waiting.communicate()
    assert said == f"{place}: waiting: compare (process {holder.pid}) measures on the CPU\n"
