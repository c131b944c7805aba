"""Measured speeds of this machine, by the real measuring programs, in short."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from trackside.machine.accelerators.sheet import accelerators
from trackside.machine.ceiling_suite import child, suite
from trackside.machine.ceiling_suite.child import FEWEST, Speed, measure_all, repeat
from trackside.machine.ceiling_suite.sentences import sentences
from trackside.machine.ceiling_suite.suite import Options, measured_ceilings
from trackside.machine.facts import Gpu, facts
from trackside.records.ceilings import Ceiling, Sustained
from trackside.records.errors import TracksideError
from trackside.store.runs import RunStore


def ceiling(place: str, name: str, value: float, unit: str = "B/s") -> Ceiling:
    return Ceiling(
        place=place, name=name, title=name, unit=unit, value=value, best=value, spread=0.0, n=5, method=""
    )  # type: ignore[arg-type]


def test_cpu_and_disk_are_measured_with_n_spread_and_method_and_kept(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    options = Options(("cpu", "disk"), tmp_path, store=tmp_path / "home", scale=0.07)
    record = measured_ceilings(options, lambda place, what: said.append((place, what)))
    names = {(one.place, one.name) for one in record.ceilings}
    assert {("cpu", "cpu.memory.copy"), ("cpu", "cpu.gemm.fp32"), ("disk", "disk.read.sequential")} <= names
    assert all(one.n >= FEWEST and one.value > 0 and one.method for one in record.ceilings)
    assert ("cpu", "memory copy") in said
    assert [run.verb for run in RunStore(tmp_path / "home").list()] == ["ceilings"]
    again = measured_ceilings(options)
    assert (again.cached, again.measured_at) == (True, record.measured_at)


def test_kept_figures_that_are_too_old_or_damaged_are_measured_again(tmp_path: Path) -> None:
    options = Options(("disk",), tmp_path, store=tmp_path / "home", scale=0.07)
    first = measured_ceilings(options)
    old = Options(("disk",), tmp_path, store=tmp_path / "home", scale=0.07, age=timedelta(0))
    assert not measured_ceilings(old).cached
    (kept,) = (tmp_path / "home" / "machine").glob("ceilings-*.json")
    kept.write_text("{")
    assert measured_ceilings(options).run_id != first.run_id


def test_the_disk_s_file_leaves_nothing_behind_when_the_program_is_killed(tmp_path: Path) -> None:
    asked = json.dumps({"folder": str(tmp_path), "bytes": 64 << 20, "seconds": 60, "index": None})
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
    gpus = tuple(
        Gpu(i, "NVIDIA H200", f"GPU-{i}", None, None, None, None, None, None, None, None, None)
        for i in range(3)
    )
    machine = replace(facts(), gpus=gpus, software=replace(facts().software, torch=None))
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
    assert "in less than 8 s" in found[3]


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
    (long,) = record.sustained
    assert long.last > 0
    (sheet,) = [row for row in accelerators() if "NVIDIA H200" in row.device_names] or [None]
    if sheet is not None and sheet.bandwidth is not None:
        assert found["gpu.memory.read"].value < 1.05 * sheet.bandwidth.value
