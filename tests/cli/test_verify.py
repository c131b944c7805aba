"""`trackside verify`, as the real program, on certificates of two commands that really ran."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trackside.cli import main as cli
from trackside.comparison.certificate import seal
from trackside.comparison.commands import CommandOptions, run_commands
from trackside.records.compare import CompareRecord
from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

PYTHON = shlex.join([sys.executable, "-I", "-S"])


@pytest.fixture(scope="module")
def quick_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One quad in a block, and a lock that no other comparison on this machine holds."""
    locks = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trackside.store.lock._lock_folder", lambda: locks)
        patch.setattr("trackside.comparison.commands._MAX_QUADS", 1)
        yield


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, quick_judge: None) -> CompareRecord:
    """`faster`, from a sleep against none."""
    work = tmp_path_factory.mktemp("work")
    (work / "old.py").write_text("import sys, time\ntime.sleep(0.15)\nprint(sys.argv[1])\n")
    (work / "new.py").write_text("import sys\nprint(sys.argv[1])\n")
    old, new = (f"{PYTHON} {name} {{seed}}" for name in ("old.py", "new.py"))
    return run_commands(CommandOptions(old, new, pairs=4, folder=work, store=work / "home"))


@pytest.fixture
def certified(original: CompareRecord, home: Path) -> Iterator[CompareRecord]:
    """That record in a store of the test's own, its files as they were."""
    assert original.certified
    folder = Path(original.environment["folder"])
    shutil.copytree(folder / "home", home)
    candidate = (folder / "new.py").read_bytes()
    yield original
    (folder / "new.py").write_bytes(candidate)


def store_again(home: Path, record: CompareRecord, **changes: object) -> str:
    """Another run with an edited copy of the record, sealed as if it had been written so."""
    store = RunStore(home)
    run = store.new_run("compare")
    edited = CompareRecord.model_validate(record.to_dict() | changes | {"run_id": run.id, "seal": None})
    store.write_record(run, seal(edited).to_dict())
    return run.id


def test_a_certificate_holds_until_something_it_rests_on_changes(
    trackside: Trackside, certified: CompareRecord
) -> None:
    done = trackside("verify", "last")
    assert (done.returncode, done.stderr) == (0, "")
    assert "HOLDS" in done.stdout
    assert f"next: trackside verify {certified.run_id} --rerun" in done.stdout

    script = Path(certified.environment["folder"]) / "new.py"
    script.write_text("import sys\nprint(sys.argv[1], end='\\n')\n")
    done = trackside("verify", str(certified.run_id), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["holds"]) == (1, "trackside.verify/1", False)
    assert document["changed"] == [f"candidate:{script}"]
    assert document["run_id"] == certified.run_id
    text = trackside("verify", "last").stdout
    assert "DOES NOT HOLD" in text
    assert "new.py changed" in text

    refused = trackside("verify", "last", "--rerun", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["kind"]) == (2, "workload")


def test_exit_codes_tell_edited_uncertified_unknown_and_foreign_records_apart(
    trackside: Trackside, certified: CompareRecord, home: Path
) -> None:
    uncertified = store_again(home, certified, certified=False, certificate="none")
    done = trackside("verify", uncertified)
    assert (done.returncode, "never certified" in done.stdout) == (1, True)

    plain = {name: value for name, value in certified.environment.items() if name != "software"}
    done = trackside("verify", store_again(home, certified, environment=plain))
    assert (done.returncode, "NOT KNOWN" in done.stdout) == (4, True)

    foreign = store_again(home, certified, environment=certified.environment | {"fingerprint": "0" * 16})
    assert trackside("verify", foreign).returncode == 1
    done = trackside("verify", foreign, "--rerun", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (3, "unsupported")

    path = home / "runs" / str(certified.run_id) / "record.json"
    path.write_text(path.read_text().replace('"holds": true', '"holds": false'))
    done = trackside("verify", str(certified.run_id))
    assert (done.returncode, "altered after it was sealed" in done.stdout) == (1, True)


def test_a_rerun_compares_again_and_reports_both_intervals(
    certified: CompareRecord, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process, so that the lock is the test's own.
    code = cli.main(["verify", str(certified.run_id), "--rerun", "--json"])
    document = json.loads(capsys.readouterr().out)
    rerun = document["rerun"]
    assert rerun["run_id"] != certified.run_id
    assert RunStore(home).load(rerun["run_id"])["options"]["pairs"] == 4
    assert rerun["verdict"] == "faster"
    assert " then, " in rerun["detail"]
    # A busy machine may make the two differ; then the code must say so.
    assert code == (0 if rerun["agrees"] else 1)
    assert document["holds"] is rerun["agrees"]


def test_an_unknown_run_is_not_found(trackside: Trackside, home: Path) -> None:
    done = trackside("verify", "c-1", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (2, "not-found")


def test_a_run_of_another_verb_is_told_as_such(trackside: Trackside, home: Path) -> None:
    store = RunStore(home)
    run = store.new_run("doctor")
    store.write_record(run, {"schema": "trackside.doctor/1", "checks": []})
    done = trackside("verify", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"found: run {run.id} is trackside.doctor/1; needed: a comparison" in done.stderr
    assert "remedy: trackside runs list --verb compare" in done.stderr
