import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest

import trackside.machine
from trackside.machine import nvml as ours
from trackside.machine.nvml import Nvml, gpu_processes, reason_names
from trackside.machine.system_files import Unknown
from trackside.records.errors import TracksideError

REAL = pytest.importorskip("pynvml")


def used_functions() -> set[str]:
    folder = Path(trackside.machine.__file__).parent
    found = (re.findall(r'"(nvml[A-Z]\w+)"', path.read_text()) for path in folder.glob("*.py"))
    return {name for names in found for name in names}


def test_every_nvml_function_that_is_asked_for_exists_in_the_package() -> None:
    assert len(used_functions()) > 20
    assert [name for name in used_functions() if not hasattr(REAL, name)] == []


def test_the_stand_in_has_the_real_signatures(pynvml: Any) -> None:
    for name in used_functions():
        real = list(inspect.signature(getattr(REAL, name)).parameters.values())
        needed = [p for p in real if p.default is inspect.Parameter.empty and p.kind is not p.VAR_KEYWORD]
        fake = inspect.signature(getattr(pynvml, name)).parameters
        assert len(fake) == len(needed), name


def test_our_enumerations_are_nvmls() -> None:
    assert ours.CLOCK_SM == REAL.NVML_CLOCK_SM
    assert ours.CLOCK_MEMORY == REAL.NVML_CLOCK_MEM
    assert ours.TEMPERATURE_GPU == REAL.NVML_TEMPERATURE_GPU
    assert ours.POLICY_POWER == REAL.NVML_PERF_POLICY_POWER
    assert ours.POLICY_THERMAL == REAL.NVML_PERF_POLICY_THERMAL
    for bit, name in ours.REASONS.items():
        matching = [n for n in dir(REAL) if n.startswith(f"nvmlClocksThrottleReason{name}")]
        assert [getattr(REAL, n) for n in matching][:1] == [bit], name


def test_reasons_are_named_and_an_unknown_bit_is_not_dropped() -> None:
    assert reason_names(0) == []
    assert reason_names(0x4 | 0x40) == ["SwPowerCap", "HwThermal"]
    assert reason_names(0x1 | 0x800) == ["GpuIdle", "0x800"]


def test_a_refused_query_is_unknown_with_nvmls_own_words(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetPowerUsage")
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    assert nvml.ask("nvmlDeviceGetPowerUsage", "handle") == Unknown(
        "nvmlDeviceGetPowerUsage", "Not Supported"
    )


def test_a_function_that_the_package_lacks_is_unknown(pynvml: Any) -> None:
    answer = Nvml(pynvml).ask("nvmlDeviceGetSomethingNew", "handle")
    assert isinstance(answer, Unknown)


def test_an_old_driver_is_asked_by_the_old_name(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetCurrentClocksEventReasons")
    assert Nvml(pynvml).clock_reasons("handle") == 0x4


def test_processes_carry_pid_memory_and_name(pynvml: Any) -> None:
    pynvml.processes = [(42, 1 << 30), (43, None)]
    pynvml.refused.add("nvmlSystemGetProcessName")
    assert gpu_processes(0) == [
        {"pid": 42, "used_memory": 1 << 30, "name": None},
        {"pid": 43, "used_memory": None, "name": None},
    ]


def test_not_knowing_the_processes_is_an_error_and_not_an_empty_list(pynvml: Any) -> None:
    pynvml.refused.add("nvmlDeviceGetComputeRunningProcesses")
    with pytest.raises(TracksideError, match="Not Supported") as caught:
        gpu_processes(0)
    assert caught.value.kind == "device"
    with pytest.raises(TracksideError, match="Invalid Argument"):
        gpu_processes(7)


@pytest.mark.gpu
def test_a_real_gpu_answers_every_query(gpu: int) -> None:
    nvml = Nvml.open()
    assert isinstance(nvml, Nvml)
    with nvml:
        assert isinstance(nvml.clock_reasons(nvml.device(gpu)), int)
    for process in gpu_processes(gpu):
        assert process["pid"] != os.getpid()
