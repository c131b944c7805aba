"""Each GPU's state, from the stand-in for NVML; gpu tests ask a real one."""

from types import SimpleNamespace
from typing import Any

import pynvml as real
import pytest

from trackside.machine import gpu_state
from trackside.machine.gpu_state import read_gpus
from trackside.machine.system_files import Unknown


def test_a_gpu_tells_its_limits_links_errors_and_clocks(pynvml: Any) -> None:
    (gpu,) = read_gpus()  # type: ignore[misc]
    assert (gpu["name"], gpu["compute_capability"], gpu["bus_id"]) == (
        "NVIDIA H200",
        "9.0",
        "00000000:00:05.0",
    )
    assert (gpu["power_limit_w"], gpu["slowdown_at"], gpu["shutdown_at"]) == (700.0, 89, 92)
    assert (gpu["pcie_gen"], gpu["pcie_width"]) == (5, 16)
    assert (gpu["ecc_corrected"], gpu["ecc_uncorrected_ever"]) == (0, 3)
    assert gpu["remapped_rows"] == {"corrected": 1, "uncorrected": 0, "pending": 0, "failed": 0}
    assert len(gpu["links"]) == 18
    assert gpu["links"][0] == {
        "link": 0,
        "active": True,
        "version": 7,
        "replay": 0,
        "recovery": 1,
        "crc_flit": 2,
        "crc_data": 3,
    }
    assert gpu["reasons"] == ["SwPowerCap"]
    assert (gpu["architecture"], gpu["near_cpus"]) == ("Hopper", [0, 1, 2, 3, 64])
    assert (gpu["memory_temperature"], gpu["energy_j"], gpu["recovery_action"]) == (44, 5000.0, 0)
    assert (gpu["fabric"], gpu["confidential"], gpu["peers"]) == ("completed", False, [])
    assert gpu["unknown"] == {}


def test_what_a_gpu_refuses_is_named_with_nvmls_words(pynvml: Any) -> None:
    pynvml.refused |= {"nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState"}
    (gpu,) = read_gpus()  # type: ignore[misc]
    assert "remapped_rows" not in gpu
    assert gpu["unknown"] == {"remapped_rows": "Not Supported"}
    assert gpu["links"] == []


def test_a_field_that_a_gpu_does_not_have_is_named_with_nvmls_words(pynvml: Any) -> None:
    del pynvml.fields[82]
    (gpu,) = read_gpus()  # type: ignore[misc]
    assert gpu["unknown"] == {"memory_temperature": "Not Supported"}


def test_each_gpu_tells_the_way_to_the_others(pynvml: Any) -> None:
    pynvml.count = 3
    found = read_gpus()
    assert not isinstance(found, Unknown)
    assert [peer["index"] for peer in found[1]["peers"]] == [0, 2]
    assert found[1]["peers"][0] == {
        "index": 0,
        "path": "the link between sockets",
        "peer_access": False,
        "nvlink": True,
    }
    pynvml.refused |= {"nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"}
    again = read_gpus()
    assert not isinstance(again, Unknown)
    assert again[0]["peers"][0] == {"index": 1, "path": None, "peer_access": None, "nvlink": None}


def odd_memory(total: object) -> Any:
    return lambda handle: SimpleNamespace(total=total, free=0, used=0)


@pytest.mark.parametrize("memory", [odd_memory(None), odd_memory("much"), lambda handle: None])
def test_an_odd_answer_costs_its_field_only(pynvml: Any, memory: Any) -> None:
    pynvml.nvmlDeviceGetMemoryInfo = memory
    (gpu,) = read_gpus()  # type: ignore[misc]
    assert "memory" not in gpu
    assert list(gpu["unknown"]) == ["memory"]
    assert "odd answer" in gpu["unknown"]["memory"]


def test_no_function_that_answers_with_nothing_ends_the_reading(pynvml: Any) -> None:
    asked = sorted(name for name in dir(pynvml) if name.startswith(("nvmlDevice", "nvmlSystem")))
    for name in set(asked) - {"nvmlDeviceGetHandleByIndex"}:
        setattr(pynvml, name, lambda *arguments: None)
        found = read_gpus()
        assert isinstance(found, Unknown if name == "nvmlDeviceGetCount" else list), name
        delattr(pynvml, name)
    for name in set(asked) - {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCount"}:
        setattr(pynvml, name, lambda *arguments: None)
    pynvml.count = 2
    found = read_gpus()
    assert not isinstance(found, Unknown)
    assert (found[0]["confidential"], found[0]["links"]) == (None, [])
    assert {"name", "uuid", "memory", "ecc", "power_w", "processes"} <= set(found[0]["unknown"])


def test_without_a_driver_the_answer_says_why(pynvml: Any) -> None:
    pynvml.refused.add("nvmlInit")
    assert isinstance(read_gpus(), Unknown)


def test_our_enumerations_are_nvmls() -> None:
    assert gpu_state._THRESHOLD_SHUTDOWN == real.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert gpu_state._THRESHOLD_SLOWDOWN == real.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert (gpu_state._CORRECTED, gpu_state._UNCORRECTED) == (
        real.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        real.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    )
    assert (gpu_state._VOLATILE, gpu_state._AGGREGATE) == (real.NVML_VOLATILE_ECC, real.NVML_AGGREGATE_ECC)
    assert gpu_state._MOST_LINKS == real.NVML_NVLINK_MAX_LINKS
    assert gpu_state._FIELD_RECOVERY_ACTION == real.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    assert gpu_state._FIELD_MEMORY_TEMPERATURE == real.NVML_FI_DEV_MEMORY_TEMP
    for number, name in gpu_state._ARCHITECTURES.items():
        assert getattr(real, f"NVML_DEVICE_ARCH_{name.upper()}") == number
    levels = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")
    assert list(gpu_state._PATHS) == [getattr(real, f"NVML_TOPOLOGY_{level}") for level in levels]
    states = ("NOT_SUPPORTED", "NOT_STARTED", "IN_PROGRESS", "COMPLETED")
    assert list(gpu_state._FABRIC_STATES) == [getattr(real, f"NVML_GPU_FABRIC_STATE_{s}") for s in states]
    # The bindings have a comma too many behind the first of these.
    assert real.NVML_P2P_CAPS_INDEX_READ in (gpu_state._PEER_READ, (gpu_state._PEER_READ,))
    assert gpu_state._PEER_NVLINK == real.NVML_P2P_CAPS_INDEX_NVLINK
    for name, number in gpu_state._LINK_ERRORS.items():
        assert getattr(real, f"NVML_NVLINK_ERROR_DL_{name.upper()}") == number


@pytest.mark.gpu
def test_a_real_gpu_tells_its_state() -> None:
    found = read_gpus()
    assert not isinstance(found, Unknown)
    for field in ("name", "memory", "power_limit_w", "sm_max_mhz", "reasons", "ecc", "processes"):
        assert field in found[0], found[0]["unknown"]
