"""Measured speeds of this machine, by the real measuring programs, in short."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trackside.machine.accelerators.sheet import accelerators
from trackside.machine.ceiling_suite import child, suite
from trackside.machine.ceiling_suite.child import FEWEST, Speed, measure_all, repeat
from trackside.machine.ceiling_suite.sentences import sentences
from trackside.machine.ceiling_suite.suite import Options, measured_ceilings
from trackside.machine.facts import Gpu, MachineFacts, facts
from trackside.machine.samplers import Column
from trackside.machine.telemetry import Recorder, Telemetry
from trackside.records.ceilings import Ceiling, Sustained
from trackside.records.errors import TracksideError
from trackside.store.lock import DeviceLock
from trackside.store.runs import RunStore

Trackside = Callable[..., subprocess.CompletedProcess[str]]

ANOTHER_DISK = Path("/dev/shm")


def ceiling(place: str, name: str, value: float, unit: str = "B/s") -> Ceiling:
    return Ceiling(
        place=place, name=name, title=name, unit=unit, value=value, best=value, spread=0.0, n=5, method=""
    )  # type: ignore[arg-type]


def disk_options(folder: Path, home: Path, **more: Any) -> Options:
    return Options(("disk",), folder, store=home, scale=0.07, **more)


def with_gpus(count: int, torch: str | None) -> MachineFacts:
    gpus = tuple(
        Gpu(i, "NVIDIA H200", f"GPU-{i}", None, None, None, None, None, None, None, None, None)
        for i in range(count)
    )
    return replace(facts(), gpus=gpus, software=replace(facts().software, torch=torch))


@pytest.mark.slow
def test_cpu_and_disk_are_measured_with_n_spread_and_method_and_kept(
    tmp_path: Path, home: Path, trackside: Trackside
) -> None:
    said: list[tuple[str, str]] = []
    options = Options(("cpu", "disk"), tmp_path, store=home, scale=0.07)
    record = measured_ceilings(options, lambda place, what: said.append((place, what)))
    names = {(one.place, one.name) for one in record.ceilings}
    assert {("cpu", "cpu.memory.copy"), ("cpu", "cpu.gemm.fp32"), ("disk", "disk.read.sequential")} <= names
    assert all(one.n >= FEWEST and one.value > 0 and one.method for one in record.ceilings)
    assert ("cpu", "memory copy") in said
    assert [run.verb for run in RunStore(home).list()] == ["ceilings"]
    again = measured_ceilings(options)
    assert (again.cached, again.measured_at) == (True, record.measured_at)
    # The fields and names that other programs rely on, in the document that the verb prints.
    rows = json.loads(trackside("ceilings", "cpu", "--json").stdout)["ceilings"]
    assert {"cpu.memory.read", "cpu.gemm.fp32", "cpu.gemm.bf16"} <= {row["name"] for row in rows}
    assert all({"name", "value", "unit", "n", "spread", "method"} <= row.keys() for row in rows)


def test_kept_figures_that_are_too_old_or_damaged_are_measured_again(tmp_path: Path) -> None:
    options = disk_options(tmp_path, tmp_path / "home")
    first = measured_ceilings(options)
    assert not measured_ceilings(replace(options, age=timedelta(0))).cached
    (kept,) = (tmp_path / "home" / "machine").glob("ceilings-*.json")
    kept.write_text(json.dumps(first.to_dict() | {"measured_at": first.measured_at.removesuffix("+00:00")}))
    assert not measured_ceilings(options).cached
    kept.write_text("{")
    assert measured_ceilings(options).run_id != first.run_id


def test_kept_figures_of_another_torch_are_measured_again(tmp_path: Path) -> None:
    options = disk_options(tmp_path, tmp_path / "home")
    first = measured_ceilings(options)
    (kept,) = (tmp_path / "home" / "machine").glob("ceilings-*.json")
    kept.write_text(json.dumps(first.to_dict() | {"software": first.software | {"torch": "0.1"}}))
    assert not measured_ceilings(options).cached


def test_kept_figures_stand_for_the_disk_that_was_measured(tmp_path: Path) -> None:
    if not ANOTHER_DISK.is_dir() or ANOTHER_DISK.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"needs another file system at {ANOTHER_DISK}")
    if shutil.disk_usage(ANOTHER_DISK).free < 1 << 30:
        pytest.skip(f"needs 1 GiB in {ANOTHER_DISK}")
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "below")
    home = tmp_path / "home"
    measured_ceilings(disk_options(tmp_path, home))
    assert measured_ceilings(disk_options(tmp_path / "link", home)).cached
    other = measured_ceilings(disk_options(ANOTHER_DISK, home))
    assert (other.cached, other.disk_folder) == (False, str(ANOTHER_DISK))
    assert measured_ceilings(disk_options(ANOTHER_DISK, home)).cached
    with pytest.raises(TracksideError, match="No such file"):
        measured_ceilings(disk_options(tmp_path / "nowhere", home))


def test_files_of_the_working_directory_do_not_replace_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong random')")
    monkeypatch.chdir(tmp_path)
    assert measured_ceilings(disk_options(tmp_path, tmp_path / "home")).ceilings


def test_a_folder_whose_name_is_no_text_is_measured(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"b\xffd")
    folder.mkdir()
    record = measured_ceilings(disk_options(folder, tmp_path / "home"))
    assert record.disk_folder == f"{tmp_path}/b\\udcffd"


def test_a_measuring_program_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from trackside.machine.ceiling_suite.suite import Options, measured_ceilings\n"
        # So long that its first measurement does not end within this test.
        "options = Options(('cpu',), store=Path(sys.argv[1]), scale=1000)\n"
        "measured_ceilings(options, lambda place, what: print(what, flush=True))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert any("memory read" in line for line in parent.stdout)
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    watched = os.pidfd_open(int(child))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        assert select.select([watched], [], [], 30)[0]
    finally:
        os.close(watched)


def test_a_python_that_cannot_be_started_is_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(TracksideError, match=r"found .*/python: Permission denied; needed: ") as caught:
        measured_ceilings(disk_options(tmp_path, tmp_path / "home"))
    assert "-m trackside" in caught.value.remedy


def test_a_measurement_that_fails_is_listed_as_failed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(TracksideError):
        measured_ceilings(disk_options(tmp_path, tmp_path / "home"))
    store = RunStore(tmp_path / "home")
    assert [run.state for run in store.list()] == ["failed"]
    assert "Permission denied" in store.load("last")["error"]
    assert not list((tmp_path / "home").glob("machine/*"))


def test_an_interrupt_is_listed_as_such(tmp_path: Path) -> None:
    def interrupt(place: str, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured_ceilings(disk_options(tmp_path, tmp_path / "home"), interrupt)
    record = RunStore(tmp_path / "home").load("last")
    assert (record["status"], record["error"]) == ("failed", "interrupted")


def test_a_torch_without_cuda_is_said_to_be_one() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    asked = json.dumps({"index": 0, "seconds": 0.1, "sustained": 0.1, "parent": os.getpid()})
    done = subprocess.run(
        [sys.executable, "-m", "trackside.machine.ceiling_suite.cuda_child", asked],
        capture_output=True,
        text=True,
        check=True,
    )
    first, last = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["skipped"], last) == ("gpu", {"done": True})
    assert f"torch {torch.__version__} is built without CUDA" in first["why"]


def test_a_torch_without_cuda_costs_the_disk_its_way_to_the_gpu_only(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    asked = {"folder": str(tmp_path), "bytes": 64 << 20, "seconds": 0.1, "index": 0, "parent": os.getpid()}
    done = subprocess.run(
        [sys.executable, "-m", "trackside.machine.ceiling_suite.disk_child", json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    why = {one["skipped"]: one["why"] for one in answers if "skipped" in one}
    assert "is built without CUDA" in why["disk.to-gpu"]
    assert sum("result" in one for one in answers) == 3


def test_an_old_name_of_a_part_of_a_gpu_can_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-8a4e2c54/1/0")
    name = suite._lock_name("cuda:0", with_gpus(1, None))
    # As `compare` names it, or the two would not see each other.
    assert DeviceLock(name).key == "gpu-MIG-GPU-8a4e2c54-1-0"


def test_steal_is_noted_as_a_disturbance_and_our_own_load_is_not() -> None:
    columns = (
        Column("cpu.steal.1", "s", "time", detail=True),
        Column("cpu.pressure", "s", "time"),
        Column("gpu.reasons", "", "flags"),
    )
    times = np.arange(3, dtype=np.int64) * 500_000_000
    telemetry = Telemetry(times, np.array([[0, 0, 0x40], [0.1, 0.4, 0x40], [0.1, 0.9, 0x40]]), columns)
    stolen = "steal: the hypervisor took CPU 1 for 10 % of 1.00 s"
    assert suite._disturbed("cpu", telemetry) == [f"cpu: {stolen}"]
    found = suite._disturbed("cuda:0", telemetry)
    assert found[0] == f"cuda:0: {stolen}"
    assert found[1].startswith("cuda:0: gpu: HwThermal in 3 of 3")
    assert suite._disturbed("cpu", Telemetry(times[:0], np.empty((0, 3)), columns)) == []


def test_the_disk_s_file_leaves_nothing_behind_when_the_program_is_killed(tmp_path: Path) -> None:
    asked = json.dumps(
        {"folder": str(tmp_path), "bytes": 64 << 20, "seconds": 60, "index": None, "parent": os.getpid()}
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "trackside.machine.ceiling_suite.disk_child", asked],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    for line in program.stdout:
        if "sequential" in line:
            break
    program.kill()
    program.wait()
    program.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TracksideError, match="No such file"):
        measured_ceilings(Options(("disk",), tmp_path / "nowhere", store=tmp_path))


@pytest.mark.parametrize("place", ["cuda", "cuda:0"])
def test_without_a_gpu_there_is_nothing_to_measure_on_one(place: str, tmp_path: Path) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    with pytest.raises(TracksideError, match=f"found no GPU.*needed: {place}") as caught:
        measured_ceilings(Options((place,), tmp_path, store=tmp_path))
    assert caught.value.kind == "device"


def test_gpus_are_numbered_as_cuda_sees_them_and_need_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = with_gpus(3, torch=None)
    monkeypatch.setattr(suite, "facts", lambda: machine)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    record = measured_ceilings(Options(("cuda",), tmp_path, store=tmp_path))
    assert record.places == ["cuda:0", "cuda:1"]
    assert [(one.place, one.why[:22]) for one in record.skipped] == [
        ("cuda:0", "torch is not installed"),
        ("cuda:1", "torch is not installed"),
    ]


def test_a_measurement_that_fails_costs_itself_only(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[float]:
        raise NotImplementedError("no fp8 here")

    def breaks() -> list[float]:
        raise ValueError

    measure_all(
        iter(
            [
                Speed("a", "A", "B/s", "", fails),
                Speed("b", "B", "B/s", "", breaks),
                Speed("c", "C", "µs", "how", lambda: [3.0, 1.0, 2.0, 4.0]),
            ]
        )
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == {"skipped": "a", "title": "A", "why": "no fp8 here"}
    assert lines[3]["why"].startswith("ValueError")
    result = lines[5]["result"]
    assert (result["value"], result["best"], result["n"]) == (2.5, 1.0, 4)


def test_what_is_measured_in_rounds_is_told_from_the_samples_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = iter([[9.0, 9.2], [5.0, 5.2]])
    one = Speed("a", "A", "µs", "", lambda: next(rounds))
    measure_all(iter([one, Speed("b", "B", "µs", "", lambda: [1.0]), one]))
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = suite._Found()
    with Recorder(hz=20) as recorder:
        suite._collect("cuda:0", answers, recorder.stop(), found)
    second, first = found.ceilings
    assert (first.name, first.n, first.best, first.value) == ("a", 4, 5.0, pytest.approx(7.1))
    assert first.spread > 0.5
    assert second.n == 1


def test_slow_things_are_repeated_a_few_times_and_fast_ones_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(child.time, "perf_counter", lambda: now[0])

    def once() -> float:
        now[0] += 10
        return 10.0

    assert len(repeat(once, 1.0)) == FEWEST
    assert len(repeat(lambda: 0.0, 1.0)) == child.MOST


def test_sentences_carry_the_arithmetic_of_the_figures() -> None:
    found = sentences(
        [
            ceiling("cuda:0", "gpu.memory.read", 4.26e12),
            ceiling("cuda:0", "gpu.gemm.bf16", 700e12, "FLOP/s"),
            ceiling("disk", "disk.read.sequential", 2e9),
        ],
        [
            Sustained(
                place="cuda:0",
                seconds=8,
                first=700e12,
                last=600e12,
                n=9,
                sm_mhz=1500,
                power_w=700,
                temperature=70,
                slowdowns=["SwPowerCap"],
            )
        ],
    )
    assert "4.26 TB/s: a 16 GB model cannot exceed 266 tokens/s" in found[0]
    assert "needs 164 FLOPs for each byte" in found[1]
    assert "loses 14%: from 700 to 600 TFLOP/s at 700 W, held down by SwPowerCap" in found[2]
    assert found[3].startswith("At the speed measured here a 16 GB model takes at least 8 s to load from")
    assert found[3].endswith("it reads 2.00 GB/s.")
    (slow,) = sentences([ceiling("disk", "disk.read.sequential", 966e6)], [])
    assert slow.endswith("takes at least 17 s to load from this disk: it reads 966 MB/s.")


@pytest.mark.gpu
@pytest.mark.timeout(180)
def test_a_real_gpu_is_measured_below_its_data_sheet_with_its_clocks(tmp_path: Path) -> None:
    record = measured_ceilings(Options(("cuda:0",), tmp_path, store=tmp_path, scale=0.3))
    found = {one.name: one for one in record.ceilings}
    assert {
        "gpu.memory.read",
        "gpu.memory.copy",
        "gpu.gemm.bf16",
        "gpu.copy.host-to-device.pinned",
        "gpu.launch.graph",
    } <= set(found)
    assert [one.name for one in record.skipped if one.name.startswith(("gpu.memory", "gpu.gemm.bf16"))] == []
    assert found["gpu.gemm.bf16"].sm_mhz
    assert found["gpu.gemm.bf16"].power_w
    assert "Triton kernel" in found["gpu.memory.read"].method
    assert found["gpu.memory.read"].value > found["gpu.memory.copy"].value
    # What the driver has to map is not what the allocator had in its hands.
    assert found["gpu.allocate.driver"].value > 3 * found["gpu.allocate.cached"].value
    (long,) = record.sustained
    assert long.last > 0
    (sheet,) = [row for row in accelerators() if "NVIDIA H200" in row.device_names] or [None]
    if sheet is not None and sheet.bandwidth is not None:
        assert found["gpu.memory.read"].value < 1.05 * sheet.bandwidth.value
