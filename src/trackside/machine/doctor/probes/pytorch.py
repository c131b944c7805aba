"""Probes of PyTorch's surroundings: variables left over from debugging, and where packages are read from."""

from __future__ import annotations

import sys

from trackside.machine.doctor.probe import Outcome, fails, passes, probe, warns
from trackside.machine.doctor.probes.common_facts import lying_on
from trackside.machine.doctor.probes.gpu_state import few
from trackside.machine.doctor.system import System

# Hardware queues between host and GPU: what CUDA takes, and its default.
_QUEUES_MOST, _QUEUES_DEFAULT = 32, 8
_QUIET = ("", "0", "false", "off")
# Levels of PyTorch's own log of its C++ part that only report trouble.
_QUIET_LEVELS = ("WARNING", "ERROR", "FATAL", "1", "2", "3")


@probe("pytorch.launch-blocking")
def launch_blocking(system: System) -> Outcome:
    value = system.environment.get("CUDA_LAUNCH_BLOCKING", "")
    wanted = "not set, or 0"
    if value in ("", "0"):
        return passes("0" if value else "not set", wanted)
    return fails(f"CUDA_LAUNCH_BLOCKING={value}: each launch waits for its kernel", wanted)


@probe("pytorch.torch-logs")
def torch_logs(system: System) -> Outcome:
    environment = system.environment
    loud = [name for name in ("TORCH_LOGS", "TORCH_TRACE") if environment.get(name)]
    loud += [
        name
        for name in ("TORCH_COMPILE_DEBUG", "TORCHDYNAMO_VERBOSE")
        if environment.get(name, "").lower() not in _QUIET
    ]
    level = environment.get("TORCH_CPP_LOG_LEVEL", "WARNING").upper()
    loud += [] if level in _QUIET_LEVELS else ["TORCH_CPP_LOG_LEVEL"]
    wanted = "none set outside of an investigation"
    if not loud:
        return passes("none set", wanted)
    found = few(f"{name}={environment[name][:40]}" for name in loud)
    return warns(found, wanted, [f"unset {' '.join(loud)}"])


@probe("pytorch.max-connections")
def max_connections(system: System) -> Outcome:
    value = system.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    wanted = f"not set ({_QUEUES_DEFAULT}), or 2 to {_QUEUES_MOST}; 1 for Megatron's tensor parallelism only"
    if value is None:
        return passes(f"not set: {_QUEUES_DEFAULT}", wanted)
    if value.isdigit() and 2 <= int(value) <= _QUEUES_MOST:
        return passes(value, wanted)
    if value == "1":
        return warns("1: independent streams wait for each other", wanted)
    return warns(f"{value!r}, which CUDA does not take", wanted, ["unset CUDA_DEVICE_MAX_CONNECTIONS"])


@probe("pytorch.import-time")
def import_time(system: System) -> Outcome:
    named = system.environment.get("VIRTUAL_ENV") or system.environment.get("CONDA_PREFIX")
    prefix = sys.prefix if system.live else named or "/usr"
    mount = lying_on(system, prefix)
    wanted = "Python's packages on a local file system"
    if mount.is_network:
        return warns(f"{prefix} on {mount.filesystem}, over the network ({mount.source})", wanted)
    return passes(f"{prefix} on {mount.filesystem}", wanted)
