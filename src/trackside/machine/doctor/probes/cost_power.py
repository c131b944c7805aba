"""Probes of cost and power: GPUs that are held and do nothing, and models in more bytes than needed."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import gibibytes
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.probes.serving import find_servers, model_config, option
from trackside.machine.doctor.system import System

# Bytes: what the driver and a bare context take at most; more is somebody's model.
_HELD = 1_000 << 20
# The first compute capability whose tensor cores take float8.
_FLOAT8_SINCE = (8, 9)


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


@probe("cost-power.precision-cost")
def precision_cost(system: System) -> Outcome:
    gpus = find_gpus(system)
    servers = find_servers(system)
    if isinstance(gpus, Outcome):
        return gpus
    if isinstance(servers, Outcome):
        return servers
    capable = [
        gpu
        for gpu in gpus
        if gpu.get("compute_capability")
        and tuple(int(part) for part in gpu["compute_capability"].split(".")) >= _FLOAT8_SINCE
    ]
    if not capable:
        return not_applicable("no GPU here computes in float8")
    known = {tuple(words): config for words in servers if (config := model_config(system, words))}
    wanted = "quantised weights, where an evaluation on your own task allows them"
    if not known:
        return unknown("config.json of the model that is served cannot be read")
    plain = [
        words
        for words, config in known.items()
        if not config.get("quantization_config")
        and not any(option(list(words), name) for name in ("--quantization", "-q"))
    ]
    if plain:
        kinds = sorted(
            {str(known[words].get("torch_dtype") or known[words].get("dtype") or "?") for words in plain}
        )
        return warns(f"{len(plain)} of {len(known)} served models not quantised ({few(kinds)})", wanted)
    return passes(f"{len(known)} served models, all quantised", wanted)
