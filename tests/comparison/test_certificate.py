"""Certificates after the fact: the seal, what changed since, and whether a second comparison agrees."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trackside
from trackside.comparison import certificate
from trackside.machine.facts import facts, fingerprint
from trackside.records.compare import CompareRecord
from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore
from trackside.workload import formats

BASELINE = (
    "import helper\ndef inputs(seed, device):\n    return (seed,)\ndef run(x):\n    return helper.twice(x)\n"
)
CANDIDATE = "def run(x):\n    return x + x\n"

MACHINE = facts()

Make = Callable[..., CompareRecord]


def identity(path: Path, role: Any) -> dict[str, Any]:
    found = formats.describe(path, role, None if role == "baseline" else "native")
    return {"path": str(path), "format": found.format, "sha256": found.sha256, "files": found.files}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A certified record of two files that exist, made on this machine; sealed."""
    (tmp_path / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "base.py").write_text(BASELINE)
    (tmp_path / "new.py").write_text(CANDIDATE)

    def build(**changes: Any) -> CompareRecord:
        record = {
            "run_id": "c-20260101-000000-0000",
            "verdict": "faster",
            "certified": True,
            "certificate": "full",
            "claim": "faster",
            "holds": True,
            "speedup": {"ratio": 1.5, "low": 1.4, "high": 1.6, "metric": "wall", "bounded": 1.5},
            "checks": [],
            "reasons": [],
            "baseline": identity(tmp_path / "base.py", "baseline"),
            "candidate": identity(tmp_path / "new.py", "candidate"),
            "environment": {
                "fingerprint": fingerprint(MACHINE),
                "cpu": MACHINE.cpu.model,
                "gpus": [gpu.name for gpu in MACHINE.gpus],
                "kernel": MACHINE.kernel,
                "software": dataclasses.asdict(MACHINE.software),
            },
            "statistics": {"delta": 0.02},
            "started": "2026-01-01T00:00:00+00:00",
            "seconds": 1 / 3,
            "version": trackside.__version__,
        }
        return certificate.seal(CompareRecord.model_validate(record | changes))

    return build


def failing(record: CompareRecord | dict[str, Any]) -> list[str]:
    document = record if isinstance(record, dict) else record.to_dict()
    return certificate.check(document, MACHINE).changed


def test_a_certificate_of_unchanged_files_on_the_same_machine_holds(make: Make) -> None:
    found = certificate.check(make().to_dict(), MACHINE)
    assert found.holds, [item for item in found.items if item.status != "pass"]
    assert (found.changed, found.unknown) == ([], [])
    files = {Path(item.id.partition(":")[2]).name for item in found.items if "baseline:" in item.id}
    assert files == {"base.py", "helper.py"}


# -- the seal ------------------------------------------------------------------------------------------------


def test_a_sealed_record_is_still_sealed_after_the_store_has_written_and_read_it(
    make: Make, tmp_path: Path
) -> None:
    store = RunStore(tmp_path / "home")
    record = make(telemetry={"odd": [1e-300, 1e22, -0.0, float("nan"), 2**53 + 1, "ü\u2028"], "b": 1, "a": 2})
    store.write_record(store.new_run("compare"), record.to_dict())
    stored = store.load("last")
    assert certificate.seal_of(stored) == stored["seal"]
    assert failing(stored) == []


@pytest.mark.parametrize(
    "edit",
    [
        {"verdict": "equivalent"},
        {"speedup": {"ratio": 1.5, "low": 1.4, "high": 1.6000000000000003, "metric": "wall", "bounded": 1.5}},
        {"reasons": ["x"]},
        {"seal": "0" * 64},
        {"note": "one more field"},
    ],
)
def test_an_edited_record_fails(make: Make, edit: dict[str, Any]) -> None:
    assert failing(make().to_dict() | edit) == ["record"]


def test_a_record_without_a_seal_is_unknown_not_passed(make: Make) -> None:
    found = certificate.check(make().to_dict() | {"seal": None}, MACHINE)
    assert (found.holds, found.changed, found.unknown) == (False, [], ["record"])


def test_sealing_twice_gives_the_same_seal(make: Make) -> None:
    record = make()
    assert certificate.seal(record).seal == record.seal


# -- what it rests on ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "role"), [("base.py", "baseline"), ("new.py", "candidate"), ("helper.py", "baseline")]
)
@pytest.mark.parametrize("action", ["changed", "is gone"])
def test_a_changed_or_missing_file_fails_by_name(
    make: Make, tmp_path: Path, name: str, role: str, action: str
) -> None:
    record = make()
    path = tmp_path / name
    if action == "changed":
        path.write_text(path.read_text() + "# \n")
    else:
        path.unlink()
    found = certificate.check(record.to_dict(), MACHINE)
    assert found.changed == [f"{role}:{path}"] + (["inputs"] if role == "baseline" else [])
    detail = next(item.detail for item in found.items if item.id == f"{role}:{path}")
    assert action in detail


def test_a_module_that_now_shadows_an_import_fails(make: Make, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("import numpy\n" + CANDIDATE)
    record = make()
    (tmp_path / "numpy.py").write_text("")
    assert failing(record) == [f"candidate:{tmp_path / 'numpy.py'}"]


def test_files_named_relative_to_another_folder_are_found(make: Make, tmp_path: Path) -> None:
    record = make().to_dict()
    record["baseline"]["path"] = "base.py"
    found = certificate.check(record | {"seal": certificate.seal_of(record)}, MACHINE)
    assert found.holds


def test_another_machine_fails_and_says_what_differs(make: Make) -> None:
    record = make()
    other = dataclasses.replace(MACHINE, kernel="1.2.3-other")
    found = certificate.check(record.to_dict(), other)
    assert found.changed == ["machine"]
    assert next(item for item in found.items if item.id == "machine").detail.endswith("1.2.3-other now")


def test_another_version_fails_and_one_not_recorded_is_unknown(make: Make) -> None:
    environment = make().environment
    software = {"torch": "0.0.1", "python": MACHINE.software.python}
    found = certificate.check(make(environment=environment | {"software": software}).to_dict(), MACHINE)
    assert found.changed == ["version:torch"]
    assert found.unknown == ["version:triton", "version:numpy", "version:nvidia_driver"]
    assert failing(make(version="0.0.0")) == ["version:trackside"]


def test_a_run_that_was_never_certified_fails_with_its_reason(make: Make) -> None:
    found = certificate.check(
        make(certified=False, certificate="none", verdict="rejected", reasons=["wrong sum"]).to_dict(),
        MACHINE,
    )
    assert found.changed == ["certified"]
    assert "wrong sum" in found.items[0].detail


def test_a_record_of_another_kind_is_refused() -> None:
    with pytest.raises(TracksideError, match=r"trackside\.compare/1"):
        certificate.check({"schema": "trackside.machine/1"}, MACHINE)


# -- again ---------------------------------------------------------------------------------------------------


def speed(ratio: float, low: float, high: float) -> dict[str, Any]:
    return {"ratio": ratio, "low": low, "high": high, "metric": "wall", "bounded": ratio}


@pytest.mark.parametrize(
    ("again", "verdict", "agrees"),
    [
        (speed(1.52, 1.45, 1.60), "faster", True),
        (speed(1.30, 1.29, 1.31), "faster", False),
        # The intervals overlap, but by less than two independent ones of one truth would.
        (speed(1.75, 1.58, 1.94), "faster", False),
        (speed(1.52, 1.45, 1.60), "inconclusive", False),
    ],
)
def test_two_results_agree_when_verdict_and_interval_do(
    make: Make, again: dict[str, Any], verdict: str, agrees: bool
) -> None:
    old = make(speedup=speed(1.50, 1.42, 1.585))
    assert certificate.rerun_item(old, make(speedup=again, verdict=verdict)).agrees is agrees


def test_a_difference_below_the_threshold_is_no_disagreement(make: Make) -> None:
    old, new = make(speedup=speed(1.5, 1.499, 1.501)), make(speedup=speed(1.52, 1.519, 1.521))
    assert certificate.rerun_item(old, new).agrees
    assert not certificate.rerun_item(old, make(speedup=speed(1.54, 1.539, 1.541))).agrees


def test_a_comparison_is_not_repeated_with_other_files(make: Make, tmp_path: Path) -> None:
    record = make().to_dict()
    (tmp_path / "new.py").write_text(CANDIDATE + "# better\n")
    with pytest.raises(TracksideError) as caught:
        certificate.compare_again(record, certificate.check(record, MACHINE))
    assert (caught.value.kind, caught.value.exit_code) == ("workload", 2)
    assert "new.py is not what was compared" in caught.value.message


def test_a_comparison_is_repeated_with_its_recorded_options(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run_trial(options: Any, progress: Any) -> CompareRecord:
        asked.append(options)
        return make(run_id="c-20260101-000001-0000")

    monkeypatch.setattr("trackside.comparison.trial.run_trial", run_trial)
    options = {
        "device": "cuda:1",
        "pairs": 9,
        "disabled": ["isolation"],
        "store": "/elsewhere",
        "of_later": 1,
    }
    record = make(options=options | {"baseline": "base.py", "candidate": "new.py"}).to_dict()
    found = certificate.compare_again(record, certificate.check(record, MACHINE))
    assert found.holds
    assert found.rerun is not None
    assert found.rerun.run_id == "c-20260101-000001-0000"
    (used,) = asked
    assert (used.baseline, used.candidate) == (tmp_path / "base.py", tmp_path / "new.py")
    assert (used.device, used.pairs, used.disabled, used.store) == (
        "cuda:1",
        9,
        frozenset({"isolation"}),
        None,
    )
    json.dumps(found.to_dict())
