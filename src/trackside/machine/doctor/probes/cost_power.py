"""Probes of cost and power: GPUs that are held and do nothing."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import gibibytes
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.system import System

# Bytes: what the driver and a bare context take at most; more is somebody's model.
_HELD = 1_000 << 20


@probe("cost-power.idle-gpus")
def idle_gpus(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    told = [gpu for gpu in gpus if gpu.get("utilisation") is not None and gpu.get("memory")]
    if not told:
        return unknown("NVML does not tell memory and utilisation (with MIG it does not)")
    idle = [gpu for gpu in told if gpu["utilisation"] == 0 and gpu["memory"]["used"] > _HELD]
    wanted = "no GPU that holds memory and computes nothing"
    if idle:
        found = few(f"GPU {gpu['index']} holds {gibibytes(gpu['memory']['used'])}" for gpu in idle)
        return warns(f"{found} at 0 % utilisation, at this moment", wanted)
    return passes(f"{len(told)} GPUs, none held idle at this moment", wanted)
