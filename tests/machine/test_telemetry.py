import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trackside.machine.samplers import Column, CpuSampler, ForeignProcess
from trackside.machine.system_files import Unknown
from trackside.machine.telemetry import Mark, Recorder, Telemetry, _next_due

MS = 1_000_000
PERIOD = 50 * MS


def telemetry(series: dict[Column, list[float]], **more: Any) -> Telemetry:
    """One sample each 50 ms from time 0."""
    values = np.array(list(series.values()), dtype=np.float64).T
    times = np.arange(len(values), dtype=np.int64) * PERIOD
    return Telemetry(times, values, tuple(series), **more)


def steal(cpu: int) -> Column:
    return Column(f"cpu.steal.{cpu}", "s", "time", detail=True)


REASONS = Column("gpu.reasons", "", "flags")
FOREIGN = Column("gpu.foreign_processes", "processes", "gauge")
# 21 samples, one second in all.
QUIET = [0.0] * 21


def stepped(size: float, at: int) -> list[float]:
    return [0.0] * at + [size] * (21 - at)


def test_a_quiet_second_has_no_disturbances() -> None:
    found = telemetry({steal(0): stepped(0.02, 5), REASONS: [float(0x1 | 0x4)] * 21, FOREIGN: QUIET})
    assert found.disturbances(0, 20 * PERIOD) == []


def test_steal_above_2_percent_is_reported_for_the_cpus_in_question() -> None:
    found = telemetry({steal(0): QUIET, steal(3): stepped(0.03, 5)})
    assert found.disturbances(0, 20 * PERIOD) == ["steal: the hypervisor took CPU 3 for 3 % of 1.00 s"]
    assert found.disturbances(0, 20 * PERIOD, cpus=[0]) == []
    assert len(found.disturbances(0, 20 * PERIOD, cpus=[3])) == 1


def test_what_happens_outside_the_window_does_not_count() -> None:
    found = telemetry({steal(0): stepped(0.5, 15)})
    assert found.disturbances(0, 10 * PERIOD) == []
    assert found.disturbances(16 * PERIOD, 20 * PERIOD) == []


def test_a_window_between_two_samples_is_judged_by_both() -> None:
    found = telemetry({steal(0): stepped(0.01, 15)})
    assert found.disturbances(14 * PERIOD + 10 * MS, 14 * PERIOD + 20 * MS) == [
        "steal: the hypervisor took CPU 0 for 20 % of 0.05 s"
    ]


def test_the_stolen_share_is_that_of_the_cpu_hit_hardest_among_those_asked_for() -> None:
    found = telemetry({steal(0): stepped(0.1, 5), steal(1): stepped(0.3, 5), steal(2): stepped(0.9, 5)})
    assert found.stolen(0, 20 * PERIOD, [0, 1]) == pytest.approx(0.3)
    assert found.stolen(0, 20 * PERIOD, [1, 0]) == pytest.approx(0.3)
    assert found.stolen(0, 20 * PERIOD, [0]) == pytest.approx(0.1)


def test_only_steal_inside_the_window_counts_and_it_is_a_share_of_the_window() -> None:
    found = telemetry({steal(0): stepped(0.05, 15)})
    assert found.stolen(0, 10 * PERIOD, [0]) == 0
    assert found.stolen(16 * PERIOD, 20 * PERIOD, [0]) == 0
    assert found.stolen(10 * PERIOD, 20 * PERIOD, [0]) == pytest.approx(0.1)
    # Between two samples, both count.
    assert found.stolen(14 * PERIOD + 10 * MS, 14 * PERIOD + 20 * MS, [0]) == pytest.approx(1.0)


def test_nothing_is_stolen_where_no_cpu_no_column_or_no_time_is_known() -> None:
    found = telemetry({steal(0): stepped(0.5, 5)})
    assert found.stolen(0, 20 * PERIOD, []) == 0
    assert found.stolen(0, 20 * PERIOD, [7]) == 0
    assert found.stolen(5 * PERIOD, 5 * PERIOD, [0]) == 0
    assert telemetry({REASONS: QUIET}).stolen(0, 20 * PERIOD, [0]) == 0
    assert Telemetry(np.empty(0, dtype=np.int64), np.empty((0, 0)), ()).stolen(0, 1, [0]) == 0


def test_throttled_periods_are_reported_with_the_time_lost() -> None:
    periods = Column("cpu.throttled_periods", "periods", "count")
    found = telemetry({periods: stepped(2, 5), Column("cpu.throttled", "s", "time"): stepped(0.125, 5)})
    assert found.disturbances(0, 20 * PERIOD) == [
        "cgroup: the CPU quota ran out in 2 periods and stopped us for 0.125 s"
    ]


def test_pressure_counts_from_20_percent() -> None:
    pressure = Column("cpu.pressure", "s", "time")
    assert telemetry({pressure: stepped(0.2, 5)}).disturbances(0, 20 * PERIOD) == []
    assert telemetry({pressure: stepped(0.21, 5)}).disturbances(0, 20 * PERIOD) == [
        "pressure: some task waited for a CPU during 21 % of 1.00 s"
    ]


@pytest.mark.parametrize(
    ("mask", "name"), [(0x8, "HwSlowdown"), (0x20, "SwThermal"), (0x40, "HwThermal"), (0x80, "HwPowerBrake")]
)
def test_a_hardware_or_thermal_slowdown_is_reported(mask: int, name: str) -> None:
    found = telemetry({REASONS: [*QUIET[:20], float(mask | 0x4)]})
    assert found.disturbances(0, 20 * PERIOD) == [f"gpu: {name} in 1 of 21 samples"]


def test_a_thermal_violation_between_samples_is_reported() -> None:
    found = telemetry({Column("gpu.violation.thermal", "s", "time"): stepped(0.004, 3)})
    assert found.disturbances(0, 20 * PERIOD) == ["gpu: clocks held down by temperature for 4.0 ms"]


def test_foreign_processes_are_named() -> None:
    other = ForeignProcess(77, "miner", 0, 3 * PERIOD)
    found = telemetry({FOREIGN: [1.0] * 4 + QUIET[4:]}, foreign=(other,))
    assert found.disturbances(0, 2 * PERIOD) == ["gpu: other processes compute on it: 77 (miner)"]
    assert found.disturbances(10 * PERIOD, 12 * PERIOD) == []


def test_a_window_without_samples_is_not_called_quiet() -> None:
    assert "beyond the samples" in telemetry({steal(0): QUIET}).disturbances(0, 21 * PERIOD)[0]
    empty = Telemetry(np.empty(0, dtype=np.int64), np.empty((0, 0)), ())
    assert "beyond the samples" in empty.disturbances(0, 1)[0]
    assert empty.to_record()["samples"] == 0


def test_missing_values_do_not_hide_the_others() -> None:
    values = stepped(0.5, 5)
    values[0] = values[-1] = math.nan
    assert len(telemetry({steal(0): values}).disturbances(0, 20 * PERIOD)) == 1


def test_a_window_summary_gives_shares_for_times_and_values_for_gauges() -> None:
    clock = Column("gpu.sm_mhz", "MHz", "gauge")
    busy = Column("cpu.busy", "s", "time")
    totals = [0.025 * i for i in range(21)]
    found = telemetry({clock: [float(i) for i in range(21)], busy: totals, REASONS: [4.0] * 21})
    window = found.window(2 * PERIOD, 4 * PERIOD)
    assert window["samples"] == 3
    assert window["seconds"] == pytest.approx(0.1)
    assert window["series"]["gpu.sm_mhz"] == {
        "unit": "MHz", "n": 3, "min": 2.0, "median": 3.0, "mean": 3.0, "max": 4.0
    }  # fmt: skip
    assert window["series"]["cpu.busy"]["median"] == pytest.approx(0.5)
    assert window["series"]["cpu.busy"]["unit"] == "share"
    assert window["reasons"] == {"SwPowerCap": 1.0}


def test_a_counter_that_begins_anew_has_no_rate_there() -> None:
    bus = Column("gpu.pcie_received", "bytes", "count")
    told = telemetry({bus: [0.0, 1e6, 4e9, 2e6, 3e6]}).to_record()["series"]["gpu.pcie_received"]
    assert told["min"] == pytest.approx(2e7)
    assert told["n"] == 3


def test_no_share_of_time_is_more_than_all_of_it() -> None:
    busy = Column("cpu.busy", "s", "time")
    told = telemetry({busy: [0.0, 0.05, 0.11, 0.15]}).to_record()["series"]["cpu.busy"]
    assert told["max"] == 1.0


def test_a_long_record_stays_small_and_says_how_many_samples_it_had() -> None:
    n = 20 * 3600
    columns = {
        Column(f"gauge.{i}", "x", "gauge"): list(np.random.default_rng(i).normal(size=n)) for i in range(14)
    }
    details = {steal(cpu): [0.0] * n for cpu in range(4)}
    found = telemetry(columns | details, marks=(Mark("pair 1", PERIOD),), unknown=(Unknown("a", "b"),))
    record = found.to_record()
    assert len(json.dumps(record)) < 16_384
    assert record["samples"] == record["series"]["gauge.0"]["n"] == n
    assert len(record["series"]["gauge.0"]["points"]) == 60
    assert not any(name.startswith("cpu.steal.") for name in record["series"])
    assert record["marks"] == [{"label": "pair 1", "at_s": 0.05}]
    assert record["unknown"] == [{"what": "a", "why": "b"}]
    assert record["hz"] == 20


def test_raw_samples_are_saved_whole(tmp_path: Path) -> None:
    found = telemetry({steal(0): stepped(0.5, 5), REASONS: [4.0] * 21})
    found.save(tmp_path / "telemetry.npz")
    with np.load(tmp_path / "telemetry.npz") as stored:
        assert (stored["times_ns"] == found.times_ns).all()
        assert (stored["values"] == found.values).all()
        assert list(stored["names"]) == ["cpu.steal.0", "gpu.reasons"]


@pytest.fixture
def ticks() -> Iterator[int]:
    return iter(range(0, 10**12, 10 * MS))


def test_the_recorder_samples_this_machine_from_start_to_stop() -> None:
    recorder = Recorder(hz=200)
    recorder.start()
    recorder.mark("here")
    assert [thread.name for thread in threading.enumerate()].count("trackside-telemetry") == 1
    found = recorder.stop()
    assert "trackside-telemetry" not in [thread.name for thread in threading.enumerate()]
    assert found.times_ns.size >= 2
    assert (np.diff(found.times_ns) >= 0).all()
    assert {"cpu.steal", "cpu.load"} <= {column.name for column in found.columns}
    assert found.times_ns[0] <= found.marks[0].at_ns <= found.times_ns[-1]
    assert recorder.stop().times_ns.size == found.times_ns.size


def test_a_running_recorder_answers_for_a_window_that_just_ended(ticks: Iterator[int]) -> None:
    recorder = Recorder(hz=0.01, clock=lambda: next(ticks))
    with recorder:
        recorder.mark("from")
        recorder.mark("to")
        t0, t1 = (mark.at_ns for mark in recorder._marks)
        assert not any("beyond" in found for found in recorder.disturbances(t0, t1))
        assert recorder.window(t0, t1)["samples"] >= 2


def test_a_running_recorder_says_what_was_stolen_up_to_now(
    ticks: Iterator[int], machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 {0}\ncpu1 0 0 0 0 0 0 0 {1}\n"
    root = machine({"proc/stat": line.format(0, 0)})
    monkeypatch.setattr("trackside.machine.telemetry.CpuSampler", partial(CpuSampler, root=root))
    recorder = Recorder(hz=0.01, cpus=[0, 1], clock=lambda: next(ticks))
    with recorder:
        recorder.mark("from")
        # One tick of the kernel lasts 10 ms, as long as one step of the clock here.
        (root / "proc/stat").write_text(line.format(1, 2))
        recorder.mark("to")
        t0, t1 = (mark.at_ns for mark in recorder._marks)
        first, both = recorder.stolen(t0, t1, [0]), recorder.stolen(t0, t1, [0, 1])
    assert both == pytest.approx(2 * first)
    assert 0 < both <= 1


def test_a_gpu_that_is_not_there_is_unknown_and_the_cpu_is_recorded(pynvml: Any) -> None:
    pynvml.refused.add("nvmlInit")
    with Recorder(gpu_index=0) as recorder:
        pass
    found = recorder.stop()
    assert Unknown("gpu 0", "NVML: Not Supported") in found.unknown
    assert not any(column.name.startswith("gpu.") for column in found.columns)


def test_gpu_columns_stand_beside_the_cpus(pynvml: Any) -> None:
    with Recorder(gpu_index="GPU-8a4e2c54-0000-0000-0000-000000000000") as recorder:
        pass
    series = recorder.stop().to_record()["series"]
    assert series["gpu.sm_mhz"]["max"] == 1980
    assert "cpu.load" in series


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[CpuSampler]:
    """The samplers that have been closed."""
    found: list[CpuSampler] = []
    real = CpuSampler.close

    def close(sampler: CpuSampler) -> None:
        found.append(sampler)
        real(sampler)

    monkeypatch.setattr(CpuSampler, "close", close)
    return found


def no_sample(sampler: CpuSampler, now_ns: int) -> list[float]:
    raise ZeroDivisionError("no CPUs")


def test_a_source_that_fails_ends_the_samples_and_not_the_run(
    ticks: Iterator[int], monkeypatch: pytest.MonkeyPatch, closed: list[CpuSampler]
) -> None:
    recorder = Recorder(hz=0.01, clock=lambda: next(ticks))
    recorder.start()
    recorder.mark("from")
    recorder.mark("to")
    t0, t1 = (mark.at_ns for mark in recorder._marks)
    monkeypatch.setattr(CpuSampler, "sample", no_sample)
    assert "beyond the samples" in recorder.disturbances(t0, t1)[0]
    found = recorder.stop()
    # Once: a source that is gone is not asked for the last sample.
    assert found.unknown.count(Unknown("telemetry from here on", "ZeroDivisionError: no CPUs")) == 1
    assert found.times_ns.size == 1
    assert len(closed) == 1


def test_a_driver_that_hangs_ends_the_samples_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, asleep = threading.Event(), threading.Event()

    def hang(self: CpuSampler, now_ns: int) -> list[float]:
        asleep.set()
        over.wait(60)
        return []

    monkeypatch.setattr("trackside.machine.telemetry._PATIENCE_SECONDS", 0.1)
    recorder = Recorder(hz=50)
    recorder.start()
    now = time.monotonic_ns()
    monkeypatch.setattr(CpuSampler, "sample", hang)
    assert asleep.wait(10)
    began = time.monotonic()
    try:
        assert "beyond the samples" in recorder.disturbances(now, time.monotonic_ns() + 10**9)[0]
        found = recorder.stop()
        assert time.monotonic() - began < 5
    finally:
        over.set()
    assert [entry.why for entry in found.unknown if entry.what == "telemetry from here on"] == [
        "the GPU's driver has not answered for seconds: it hangs"
    ]
    assert found.times_ns.size == len(found.values) > 0


def test_a_last_sample_that_fails_is_noted_and_everything_closed(
    monkeypatch: pytest.MonkeyPatch, closed: list[CpuSampler]
) -> None:
    recorder = Recorder(hz=0.01)
    recorder.start()
    monkeypatch.setattr(CpuSampler, "sample", no_sample)
    assert "telemetry from here on" in [entry.what for entry in recorder.stop().unknown]
    assert len(closed) == 1


def test_a_recorder_without_a_single_sample_knows_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, closed: list[CpuSampler]
) -> None:
    monkeypatch.setattr(CpuSampler, "sample", no_sample)
    with Recorder() as recorder:
        assert "beyond the samples" in recorder.disturbances(0, 1)[0]
        assert recorder.latest("cpu.load") is None
    assert recorder.stop().to_record()["samples"] == 0
    assert len(closed) == 1


def test_a_recorder_is_started_once() -> None:
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="never started"):
        recorder.stop()
    with recorder, pytest.raises(RuntimeError, match="started before"):
        recorder.start()


def test_sampling_keeps_to_its_grid_skips_missed_samples_and_limits_its_cost() -> None:
    assert _next_due(due=100, period=50, now=120, started=0, cost=0) == 150
    assert _next_due(due=100, period=50, now=275, started=0, cost=0) == 300
    assert _next_due(due=100, period=50, now=120, started=0, cost=4) == 400


@pytest.mark.gpu
def test_a_real_gpu_is_recorded(gpu: int) -> None:
    recorder = Recorder(hz=50, gpu_index=gpu)
    with recorder:
        threading.Event().wait(0.5)
    found = recorder.stop()
    series = found.to_record()["series"]
    print(json.dumps(found.to_record(), indent=1))
    assert series["gpu.sm_mhz"]["max"] > 0
    assert 0 < series["gpu.temperature_c"]["max"] < 120
    assert found.cost < 0.011
