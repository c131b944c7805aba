"""Probes of distributed jobs: what variables do to the watchdog, and how GPUs are joined."""

from __future__ import annotations

from collections import Counter

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.common_facts import version
from trackside.machine.doctor.probes.gpu_state import few, find_gpus
from trackside.machine.doctor.system import System

# PyTorch that records collectives without being told; before it two defaults contradicted each other.
_RECORDS_SINCE = (2, 13)
_OFF = ("0", "false", "no", "n")
_ONE_KIND = "export CUDA_VISIBLE_DEVICES=...    # the GPUs of one kind, with CUDA_DEVICE_ORDER=PCI_BUS_ID"
_ENTRIES = 2_000
"""Collectives: PyTorch's own default, some steps of a large model."""


@probe("distributed.flight-recorder")
def flight_recorder(system: System) -> Outcome:
    environment = system.environment
    torch = version(system, "torch")
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("fewer than two GPUs here")
    name = next(
        (n for n in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE") if n in environment), None
    )
    wanted = f"a buffer of some {_ENTRIES:,} collectives, dumped when the watchdog fires"
    on = f"export TORCH_NCCL_TRACE_BUFFER_SIZE={_ENTRIES}"
    if environment.get("TORCH_NCCL_DUMP_ON_TIMEOUT", "1").lower() in _OFF:
        return warns(
            "TORCH_NCCL_DUMP_ON_TIMEOUT is off: nothing is written",
            wanted,
            ["unset TORCH_NCCL_DUMP_ON_TIMEOUT"],
        )
    if name:
        if environment[name].strip() in ("", "0"):
            return warns(f"{name}={environment[name]}: nothing is recorded", wanted, [f"unset {name}", on])
        return passes(f"{name}={environment[name]}", wanted)
    if torch is None:
        return not_applicable("PyTorch is not installed here")
    if torch >= _RECORDS_SINCE:
        return passes(f"on by default in PyTorch {torch[0]}.{torch[1]}", wanted)
    return warns(
        f"not set, and PyTorch {torch[0]}.{torch[1]} is not sure to record by default",
        wanted,
        [on, "export TORCH_NCCL_DUMP_ON_TIMEOUT=1"],
    )


@probe("distributed.process-group-timeout")
def process_group_timeout(system: System) -> Outcome:
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    given = next(((name, system.environment[name]) for name in names if name in system.environment), None)
    wanted = "error handling left on, so that the time-out ends a hung collective"
    if given and given[1] == "0":
        return warns(f"{given[0]}=0: a hung collective waits for ever", wanted, [f"unset {given[0]}"])
    return passes(f"{given[0]}={given[1]}" if given else "not set: on", wanted)


@probe("distributed.elastic-launch")
def elastic_launch(system: System) -> Outcome:
    restarts = system.environment.get("TORCHELASTIC_MAX_RESTARTS")
    if restarts is None:
        return not_applicable("this was not started by torchrun")
    wanted = "--max-restarts above 0"
    if restarts == "0":
        return warns("torchrun without restarts", wanted, ["torchrun --max-restarts=3 ..."])
    return passes(f"{restarts} restarts", wanted)


@probe("distributed.stragglers")
def stragglers(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("fewer than two GPUs here")
    kinds = Counter(
        (gpu["name"], gpu["sm_max_mhz"]) for gpu in gpus if gpu.get("name") and gpu.get("sm_max_mhz")
    )
    if kinds.total() < len(gpus):
        return unknown("NVML does not tell name and highest clock of every GPU")
    wanted = "GPUs of one kind in a job: the slowest sets the pace of all"
    found = few(f"{count} x {name} up to {clock:,} MHz" for (name, clock), count in kinds.most_common())
    return passes(found, wanted) if len(kinds) == 1 else warns(found, wanted, [_ONE_KIND])


@probe("distributed.tensor-parallel-in-node")
def tensor_parallel_in_node(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    if len(gpus) < 2:
        return not_applicable("fewer than two GPUs here")
    if any(gpu.get("links") is None for gpu in gpus):
        return unknown("NVML does not tell the NVLinks of every GPU")
    joined = [gpu for gpu in gpus if any(link["active"] for link in gpu["links"])]
    apart = [gpu for gpu in gpus if not gpu["links"]]
    wanted = "NVLink between all GPUs of a tensor-parallel group"
    if apart:
        return warns(
            f"{len(apart)} of {len(gpus)} GPUs without NVLink: collectives go over PCIe",
            wanted,
            ["tensor-parallel size 1 with data or pipeline parallelism, where the model fits"],
        )
    if len(joined) < len(gpus):
        return not_applicable("the GPUs have NVLinks, and some are down: gpu-state.nvlink-links names them")
    return passes(f"all {len(gpus)} GPUs have active NVLinks", wanted)
