"""Each GPU's state as NVML tells it, in plain data that can be recorded and read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trackside.machine.nvml import CLOCK_MEMORY, CLOCK_SM, TEMPERATURE_GPU, Nvml, reason_names
from trackside.machine.system_files import Unknown

__all__ = ["read_gpus"]

# NVML's own enumerations, which its ABI keeps fixed.
_THRESHOLD_SHUTDOWN, _THRESHOLD_SLOWDOWN = 0, 1
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_MOST_LINKS = 36
_LINK_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}


def read_gpus() -> list[dict[str, Any]] | Unknown:
    """One dictionary for each GPU; what it did not tell stands in its `unknown`, with NVML's words."""
    nvml = Nvml.open()
    if isinstance(nvml, Unknown):
        return nvml
    with nvml:
        count = nvml.ask("nvmlDeviceGetCount")
        if isinstance(count, Unknown):
            return count
        driver = nvml.ask("nvmlSystemGetDriverVersion")
        return [
            {"index": index, "driver": None if isinstance(driver, Unknown) else driver}
            | _read_gpu(nvml, index)
            for index in range(count)
        ]


def _read_gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    device = nvml.device(index)
    if isinstance(device, Unknown):
        return {"unknown": {"everything": device.why}}
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def ask(
        field: str, function: str, *arguments: Any, take: Callable[[Any], Any] = lambda value: value
    ) -> None:
        value = nvml.ask(function, device, *arguments)
        if isinstance(value, Unknown):
            missing[field] = value.why
        else:
            found[field] = take(value)

    def flag(value: Any) -> bool:
        return bool(value)

    ask("name", "nvmlDeviceGetName")
    ask("uuid", "nvmlDeviceGetUUID")
    ask("bus_id", "nvmlDeviceGetPciInfo", take=lambda pci: _text(pci.busId).lower())
    ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", take=lambda pair: f"{pair[0]}.{pair[1]}")
    ask("vbios", "nvmlDeviceGetVbiosVersion")
    ask("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", take=str)
    ask("memory", "nvmlDeviceGetMemoryInfo", take=lambda m: {"total": int(m.total), "used": int(m.used)})
    ask(
        "bar1",
        "nvmlDeviceGetBAR1MemoryInfo",
        take=lambda m: {"total": int(m.bar1Total), "used": int(m.bar1Used)},
    )
    ask("persistence", "nvmlDeviceGetPersistenceMode", take=flag)
    ask("compute_mode", "nvmlDeviceGetComputeMode", take=int)
    ask("ecc", "nvmlDeviceGetEccMode", take=lambda pair: {"now": flag(pair[0]), "next": flag(pair[1])})
    ask("mig", "nvmlDeviceGetMigMode", take=lambda pair: {"now": flag(pair[0]), "next": flag(pair[1])})
    ask("virtualisation", "nvmlDeviceGetVirtualizationMode", take=int)
    ask("power_w", "nvmlDeviceGetPowerUsage", take=_watts)
    ask("power_limit_w", "nvmlDeviceGetPowerManagementLimit", take=_watts)
    ask("power_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", take=_watts)
    ask("enforced_limit_w", "nvmlDeviceGetEnforcedPowerLimit", take=_watts)
    ask("temperature", "nvmlDeviceGetTemperature", TEMPERATURE_GPU, take=int)
    ask("slowdown_at", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN, take=int)
    ask("shutdown_at", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SHUTDOWN, take=int)
    for name, which in (("sm", CLOCK_SM), ("memory", CLOCK_MEMORY)):
        ask(f"{name}_mhz", "nvmlDeviceGetClockInfo", which, take=int)
        ask(f"{name}_max_mhz", "nvmlDeviceGetMaxClockInfo", which, take=int)
        ask(f"{name}_set_mhz", "nvmlDeviceGetApplicationsClock", which, take=int)
        ask(f"{name}_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", which, take=int)
    reasons = nvml.clock_reasons(device)
    if isinstance(reasons, Unknown):
        missing["reasons"] = reasons.why
    else:
        found["reasons"] = reason_names(reasons)
    ask("utilisation", "nvmlDeviceGetUtilizationRates", take=lambda rates: int(rates.gpu))
    ask("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration", take=int)
    ask("pcie_max_gen", "nvmlDeviceGetMaxPcieLinkGeneration", take=int)
    ask("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", take=int)
    ask("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth", take=int)
    ask("pcie_replays", "nvmlDeviceGetPcieReplayCounter", take=int)
    for name, kind in (("corrected", _CORRECTED), ("uncorrected", _UNCORRECTED)):
        ask(f"ecc_{name}", "nvmlDeviceGetTotalEccErrors", kind, _VOLATILE, take=int)
        ask(f"ecc_{name}_ever", "nvmlDeviceGetTotalEccErrors", kind, _AGGREGATE, take=int)
    ask("remapped_rows", "nvmlDeviceGetRemappedRows", take=_remapped)
    ask("recovery_action", "nvmlDeviceGetFieldValues", [_RECOVERY_ACTION_FIELD], take=_recovery)
    found["links"] = _links(nvml, device)
    processes = nvml.processes(device)
    if isinstance(processes, Unknown):
        missing["processes"] = processes.why
    else:
        found["processes"] = processes
    return found | {"unknown": missing}


# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, since driver 560.
_RECOVERY_ACTION_FIELD = 230


def _recovery(values: Any) -> int | None:
    value = values[0]
    return int(value.value.uiVal) if value.nvmlReturn == 0 else None


def _remapped(rows: Any) -> dict[str, int]:
    return dict(zip(("corrected", "uncorrected", "pending", "failed"), map(int, rows), strict=True))


def _links(nvml: Nvml, device: object) -> list[dict[str, Any]]:
    """NVLinks that the GPU has, active or not, with their error counters."""
    found = []
    for link in range(_MOST_LINKS):
        state = nvml.ask("nvmlDeviceGetNvLinkState", device, link)
        if isinstance(state, Unknown):
            continue
        row: dict[str, Any] = {"link": link, "active": bool(state)}
        for name, counter in _LINK_ERRORS.items():
            value = nvml.ask("nvmlDeviceGetNvLinkErrorCounter", device, link, counter)
            if not isinstance(value, Unknown):
                row[name] = int(value)
        found.append(row)
    return found


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
