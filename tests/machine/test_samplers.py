import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trackside.machine.nvml import Nvml
from trackside.machine.samplers import CpuSampler, GpuSampler
from trackside.machine.system_files import Unknown

MakeMachine = Callable[[dict[str, str]], Path]

SECOND = 1_000_000_000
TICK = 1 / os.sysconf("SC_CLK_TCK")

BUSY_MACHINE = {
    "proc/stat": "cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 10 1 2 30 7 0\ncpu1 10 0 5 80 1 0 0 4 0 0\nintr\n",
    "proc/pressure/cpu": "some avg10=0.69 avg60=0.67 avg300=0.21 total=3500000\nfull avg10=0 total=0\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\nfull avg10=0 total=0\n",
    "proc/pressure/io": "some avg10=0.10 avg60=0.02 avg300=0.00 total=1500000\nfull avg10=0 total=0\n",
    "proc/loadavg": "1.50 0.70 0.38 3/120 4242\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/job/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/job/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
}


def row(sampler: CpuSampler | GpuSampler, now_ns: int = 0) -> dict[str, float]:
    names = [column.name for column in sampler.columns]
    return dict(zip(names, sampler.sample(now_ns), strict=True))


def test_every_source_of_a_linux_machine_becomes_a_column(machine: MakeMachine) -> None:
    sampler = CpuSampler([0, 1], machine(BUSY_MACHINE))
    assert row(sampler) == pytest.approx(
        {
            "cpu.steal": 17 * TICK,
            "cpu.busy": (153 + 15) / 2 * TICK,
            "cpu.steal.0": 30 * TICK,
            "cpu.steal.1": 4 * TICK,
            "cpu.pressure": 3.5,
            "memory.pressure": 0.25,
            "io.pressure": 1.5,
            "cpu.load": 1.5,
            "cpu.running": 3.0,
            "cpu.throttled_periods": 4.0,
            "cpu.throttled": 0.25,
            "cpu.mhz": 2500.0,
        }
    )
    assert sampler.unknown == []
    sampler.close()


def test_version_1_throttling_is_read_in_its_own_unit(machine: MakeMachine) -> None:
    root = machine(
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "proc/self/mountinfo": "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 500000000\n",
        }
    )
    sampler = CpuSampler([0], root)
    assert row(sampler) == {"cpu.throttled_periods": 2.0, "cpu.throttled": 0.5}
    sampler.close()


def test_a_source_that_breaks_later_yields_nan_and_keeps_the_columns(machine: MakeMachine) -> None:
    root = machine(BUSY_MACHINE)
    sampler = CpuSampler([0, 1], root)
    (root / "proc/loadavg").write_text("gone")
    found = row(sampler)
    assert math.isnan(found["cpu.load"])
    assert found["cpu.pressure"] == 3.5
    sampler.close()


def test_missing_sources_are_named(tmp_path: Path) -> None:
    sampler = CpuSampler([0], tmp_path)
    assert sampler.columns == []
    named = {entry.what for entry in sampler.unknown}
    assert named == {
        *("cpu steal and busy time", "cpu pressure", "memory pressure", "io pressure"),
        *("cpu load", "cpu throttling", "cpu frequency"),
    }


def test_a_source_that_opens_but_cannot_be_read_is_named_and_not_left_open(machine: MakeMachine) -> None:
    # Folders open like files and fail when read, as pressure does without the kernel option.
    root = machine({"proc/pressure/cpu/folder": "", "proc/loadavg/folder": ""})
    before = os.listdir("/proc/self/fd")
    sampler = CpuSampler([0], root)
    assert Unknown("cpu load", "Is a directory") in sampler.unknown
    assert os.listdir("/proc/self/fd") == before
    sampler.close()


def gpu_sampler(fake: Any, proc: Path, own: set[int]) -> GpuSampler:
    return GpuSampler(Nvml(fake), "handle", own, proc)


def process(proc: Path, pid: int, parent: int) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (a (strange) name) S {parent} 1 1 0 -1\n")


def test_every_nvml_query_becomes_a_column(pynvml: Any, tmp_path: Path) -> None:
    assert row(gpu_sampler(pynvml, tmp_path, set())) == pytest.approx(
        {
            "gpu.sm_mhz": 1980,
            "gpu.memory_mhz": 3201,
            "gpu.power_w": 123.456,
            "gpu.temperature_c": 41,
            "gpu.memory_temperature_c": 44,
            "gpu.energy": 5000.0,
            "gpu.power_now_w": 345.678,
            "gpu.pcie_sent": 7 << 40,
            "gpu.pcie_received": 9 << 40,
            "gpu.reasons": 0x4,
            "gpu.violation.power": 5.0,
            "gpu.violation.thermal": 0.0,
            "gpu.utilisation": 37,
            "gpu.memory_used": 754820096,
            "gpu.foreign_processes": 0,
        }
    )


def burning(ns: int, answers: list[int]) -> Any:
    """An answer that takes the driver so long, of the CPU's time."""

    def answer(*_: object) -> int:
        began = time.thread_time_ns()
        while time.thread_time_ns() - began < ns:
            pass
        answers.append(1)
        return 1000 * len(answers)

    return answer


@pytest.mark.parametrize(
    ("function", "times", "least", "most"),
    [
        pytest.param("nvmlDeviceGetPowerUsage", 1, 0, 2, id="seldom: 0.02 % of a core"),
        pytest.param("nvmlDeviceGetPowerUsage", 5, 3, 6, id="five times as often"),
        pytest.param("nvmlDeviceGetClockInfo", 1, 3, 7, id="the clock: 0.08 % of a core"),
    ],
)
def test_a_question_that_takes_the_driver_long_is_asked_as_often_as_its_share_of_a_core_allows(
    pynvml: Any, tmp_path: Path, function: str, times: int, least: int, most: int
) -> None:
    answers: list[int] = []
    setattr(pynvml, function, burning(1_000_000, answers))
    sampler = GpuSampler(Nvml(pynvml), "handle", set(), tmp_path, times)
    answers.clear()
    for when in range(0, 5_000_000_000, 50_000_000):
        sampler.sample(when)
    assert least <= len(answers) <= most


def test_a_question_that_is_answered_at_once_is_asked_each_time(pynvml: Any, tmp_path: Path) -> None:
    answers: list[int] = []
    pynvml.nvmlDeviceGetPowerUsage = burning(0, answers)
    sampler = gpu_sampler(pynvml, tmp_path, set())
    answers.clear()
    for when in range(0, 5_000_000_000, 50_000_000):
        sampler.sample(when)
    assert len(answers) > 80


def test_a_query_that_the_gpu_refuses_is_unknown(pynvml: Any, tmp_path: Path) -> None:
    pynvml.refused.update({"nvmlDeviceGetViolationStatus", "nvmlDeviceGetComputeRunningProcesses"})
    sampler = gpu_sampler(pynvml, tmp_path, set())
    assert Unknown("gpu.violation.thermal", "Not Supported") in sampler.unknown
    assert Unknown("gpu processes", "Not Supported") in sampler.unknown
    assert "gpu.foreign_processes" not in row(sampler)


def test_descendants_of_ours_are_not_foreign_and_others_are(pynvml: Any, tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (100, 1), (110, 100), (111, 110), (200, 1)):
        process(tmp_path, pid, parent)
    pynvml.processes = [(111, 5), (200, 5)]
    sampler = gpu_sampler(pynvml, tmp_path, {100})
    assert row(sampler)["gpu.foreign_processes"] == 1
    assert [(found.pid, found.name) for found in sampler.foreign.values()] == [(200, "program-200")]


def test_an_invisible_process_is_foreign_only_if_it_was_there_first(pynvml: Any, tmp_path: Path) -> None:
    pynvml.processes = [(900, None)]
    sampler = gpu_sampler(pynvml, tmp_path, {100})
    assert row(sampler, 0)["gpu.foreign_processes"] == 1
    pynvml.processes = [(900, None), (901, None)]
    assert row(sampler, 2 * SECOND)["gpu.foreign_processes"] == 1
    assert "owner of GPU process 901" in [entry.what for entry in sampler.unknown]


def test_processes_are_listed_once_a_second_at_most(pynvml: Any, tmp_path: Path) -> None:
    sampler = gpu_sampler(pynvml, tmp_path, set())
    row(sampler, 0)
    process(tmp_path, 300, 0)
    pynvml.processes = [(300, 1)]
    assert row(sampler, SECOND // 2)["gpu.foreign_processes"] == 0
    assert row(sampler, SECOND)["gpu.foreign_processes"] == 1
