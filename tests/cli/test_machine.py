"""`trackside machine`, as the real program, on this machine."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

Trackside = Callable[..., subprocess.CompletedProcess[str]]


def test_the_machine_is_told_in_one_document(trackside: Trackside) -> None:
    done = trackside("machine", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert document["schema"] == "trackside.machine/1"
    assert len(document["fingerprint"]) == 16
    assert document["cpu"]["threads"] == os.cpu_count()
    assert all(one["why"] for one in document["unknown"])


def test_a_person_sees_processor_memory_and_the_next_command(trackside: Trackside) -> None:
    done = trackside("machine")
    assert done.returncode == 0
    for word in ("processor", "memory", "file system", "software", "next: trackside doctor"):
        assert word in done.stdout


def test_the_record_is_kept_and_shown_again(trackside: Trackside) -> None:
    trackside("machine")
    shown = trackside("runs", "show", "last")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "fingerprint" in shown.stdout


def test_where_nothing_can_be_stored_it_still_answers(trackside: Trackside, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = trackside("machine", "--json", TRACKSIDE_HOME=str(tmp_path / "file"))
    assert json.loads(done.stdout)["run_id"] is None
    assert "remark: what machine found is not kept as a run: cannot create" in done.stderr
