"""Each GPU's state as NVML tells it, in plain data that can be recorded and read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trackside.machine.nvml import (
    CLOCK_MEMORY,
    CLOCK_SM,
    TEMPERATURE_GPU,
    Nvml,
    answered,
    as_text,
    reason_names,
    understood,
)
from trackside.machine.system_files import Unknown

__all__ = ["read_gpus"]

# NVML's own enumerations, which its ABI keeps fixed.
_THRESHOLD_SHUTDOWN, _THRESHOLD_SLOWDOWN = 0, 1
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_MOST_LINKS = 36
_ARCHITECTURES = {5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell", 13: "Rubin"}
_FIELD_MEMORY_TEMPERATURE = 82
# Since driver 560.
_FIELD_RECOVERY_ACTION = 230
# What the way between two GPUs passes through at most.
_PATHS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "a host bridge",
    40: "one NUMA node",
    50: "the link between sockets",
}
_PEER_READ, _PEER_NVLINK = 0, 2
_FABRIC_STATES = {0: "none", 1: "not started", 2: "in progress", 3: "completed"}
_AFFINITY_WORDS = 64
"""Of 64 CPUs each: more than any machine has."""
_LINK_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}


def read_gpus() -> list[dict[str, Any]] | Unknown:
    """One dictionary for each GPU; what it did not tell stands in its `unknown`, with NVML's words."""
    return answered(_read_all)


def _read_all() -> list[dict[str, Any]] | Unknown:
    nvml = Nvml.open()
    if isinstance(nvml, Unknown):
        return nvml
    with nvml:
        count = understood(nvml.ask("nvmlDeviceGetCount"), int)
        if isinstance(count, Unknown):
            return count
        driver = understood(nvml.ask("nvmlSystemGetDriverVersion"), as_text)
        confidential = understood(nvml.ask("nvmlSystemGetConfComputeState"), lambda c: bool(int(c.ccFeature)))
        common = {
            "driver": None if isinstance(driver, Unknown) else driver,
            "confidential": None if isinstance(confidential, Unknown) else confidential,
        }
        return [{"index": index} | common | _read_gpu(nvml, index, count) for index in range(count)]


def _read_gpu(nvml: Nvml, index: int, count: int) -> dict[str, Any]:
    device = nvml.device(index)
    if isinstance(device, Unknown):
        return {"unknown": {"everything": device.why}}
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def ask(field: str, function: str, *arguments: Any, take: Callable[[Any], Any]) -> None:
        note(field, nvml.ask(function, device, *arguments), take)

    def note(field: str, value: Any, take: Callable[[Any], Any] = lambda value: value) -> None:
        value = understood(value, take)
        if isinstance(value, Unknown):
            missing[field] = value.why
        else:
            found[field] = value

    def flag(value: Any) -> bool:
        return bool(int(value))

    ask("name", "nvmlDeviceGetName", take=as_text)
    ask("uuid", "nvmlDeviceGetUUID", take=as_text)
    ask("bus_id", "nvmlDeviceGetPciInfo", take=lambda pci: as_text(pci.busId).lower())
    ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", take=lambda pair: f"{pair[0]}.{pair[1]}")
    ask("architecture", "nvmlDeviceGetArchitecture", take=lambda n: _ARCHITECTURES.get(n, f"number {n}"))
    ask("near_cpus", "nvmlDeviceGetCpuAffinity", _AFFINITY_WORDS, take=_cpus)
    ask("vbios", "nvmlDeviceGetVbiosVersion", take=as_text)
    ask("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", take=as_text)
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
    note("memory_temperature", nvml.field(device, _FIELD_MEMORY_TEMPERATURE), int)
    ask("energy_j", "nvmlDeviceGetTotalEnergyConsumption", take=lambda millijoules: millijoules / 1000)
    ask("slowdown_at", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN, take=int)
    ask("shutdown_at", "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SHUTDOWN, take=int)
    for name, which in (("sm", CLOCK_SM), ("memory", CLOCK_MEMORY)):
        ask(f"{name}_mhz", "nvmlDeviceGetClockInfo", which, take=int)
        ask(f"{name}_max_mhz", "nvmlDeviceGetMaxClockInfo", which, take=int)
        ask(f"{name}_set_mhz", "nvmlDeviceGetApplicationsClock", which, take=int)
        ask(f"{name}_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", which, take=int)
    note("reasons", nvml.clock_reasons(device), reason_names)
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
    note("recovery_action", nvml.field(device, _FIELD_RECOVERY_ACTION), int)
    note("fabric", nvml.fabric_state(device), lambda state: _FABRIC_STATES.get(state, f"state {state}"))
    found["links"] = _links(nvml, device)
    found["peers"] = [_peer(nvml, device, other) for other in range(count) if other != index]
    note("processes", nvml.processes(device))
    return found | {"unknown": missing}


def _cpus(words: Any) -> list[int]:
    """CPUs beside the GPU's PCIe root, from a bit mask."""
    return [64 * number + bit for number, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def _peer(nvml: Nvml, device: object, other: int) -> dict[str, Any]:
    """The way to another GPU, and whether each may read the other's memory; None where NVML does not say."""
    row: dict[str, Any] = {"index": other, "path": None, "peer_access": None, "nvlink": None}
    there = nvml.device(other)
    if isinstance(there, Unknown):
        return row
    path = understood(nvml.ask("nvmlDeviceGetTopologyCommonAncestor", device, there), int)
    if not isinstance(path, Unknown):
        row["path"] = _PATHS.get(path, f"level {path}")
    for name, capability in (("peer_access", _PEER_READ), ("nvlink", _PEER_NVLINK)):
        status = understood(nvml.ask("nvmlDeviceGetP2PStatus", device, there, capability), int)
        if not isinstance(status, Unknown):
            row[name] = status == 0
    return row


def _remapped(rows: Any) -> dict[str, int]:
    return dict(zip(("corrected", "uncorrected", "pending", "failed"), map(int, rows), strict=True))


def _links(nvml: Nvml, device: object) -> list[dict[str, Any]]:
    """NVLinks that the GPU has, active or not, with their error counters."""
    found = []
    for link in range(_MOST_LINKS):
        state = understood(nvml.ask("nvmlDeviceGetNvLinkState", device, link), int)
        if isinstance(state, Unknown):
            continue
        row: dict[str, Any] = {"link": link, "active": bool(state)}
        version = understood(nvml.ask("nvmlDeviceGetNvLinkVersion", device, link), int)
        if not isinstance(version, Unknown):
            row["version"] = version
        for name, counter in _LINK_ERRORS.items():
            value = understood(nvml.ask("nvmlDeviceGetNvLinkErrorCounter", device, link, counter), int)
            if not isinstance(value, Unknown):
                row[name] = value
        found.append(row)
    return found


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000
