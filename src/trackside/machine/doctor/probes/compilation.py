"""Probes of compilation: where compiled code is kept, and how many processes compile at once."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, warns
from trackside.machine.doctor.probes.common_facts import lost_because, lying_on
from trackside.machine.doctor.probes.gpu_state import find_gpus
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.system_files import parse_cpu_list

# Inductor's own ceiling of workers in one process.
_MOST_WORKERS = 32


@probe("compilation.cache-dir")
def cache_dir(system: System) -> Outcome:
    folder = system.environment.get("TORCHINDUCTOR_CACHE_DIR")
    temporary = system.environment.get("TMPDIR") or "/tmp"
    if "torch" not in system.packages:
        return not_applicable("PyTorch is not installed here")
    mount = lying_on(system, folder or temporary)
    wanted = "TORCHINDUCTOR_CACHE_DIR on a local drive or volume that outlives the container"
    lost = lost_because(mount)
    if not folder:
        return warns(f"not set: compiled code goes to {temporary} ({lost or mount.filesystem})", wanted)
    if lost or mount.is_network:
        return warns(f"{folder} on {lost or f'{mount.filesystem}, over the network'}", wanted)
    return passes(f"{folder} on {mount.filesystem}", wanted)


@probe("compilation.compile-workers")
def compile_workers(system: System) -> Outcome:
    gpus = find_gpus(system)
    given = system.environment.get("TORCHINDUCTOR_COMPILE_THREADS", "")
    allowed = _allowed_cpus(system)
    quota = _cpu_quota(system)
    if isinstance(gpus, Outcome):
        return gpus
    ranks = len(gpus)
    # Inductor counts the CPUs that the process may run on; a quota it does not see.
    workers = int(given) if given.isdigit() else min(_MOST_WORKERS, allowed)
    cpus = min(allowed, quota) if quota else allowed
    found = f"{workers} workers for each of {ranks} GPUs on {cpus:g} CPUs"
    wanted = "no more workers in all than CPUs, or one in each process"
    if workers <= 1 or workers * ranks <= cpus:
        return passes(found, wanted)
    return warns(found, wanted, [f"export TORCHINDUCTOR_COMPILE_THREADS={max(1, int(cpus / ranks))}"])


@probe("compilation.triton-autotune-cache")
def triton_autotune_cache(system: System) -> Outcome:
    always = system.environment.get("TRITON_ALWAYS_COMPILE", "").lower() in ("1", "on", "true", "y", "yes")
    stored = system.environment.get("TRITON_CACHE_AUTOTUNING", "").lower()
    wanted = "TRITON_CACHE_AUTOTUNING=1, and no TRITON_ALWAYS_COMPILE"
    if always:
        return warns(
            "TRITON_ALWAYS_COMPILE is set: each process compiles anew",
            wanted,
            ["unset TRITON_ALWAYS_COMPILE"],
        )
    if not stored:
        return not_applicable("TRITON_CACHE_AUTOTUNING is not set; it is for programs with @triton.autotune")
    if stored in ("1", "on", "true", "y", "yes"):
        return passes("tuning results are stored", wanted)
    return warns(f"TRITON_CACHE_AUTOTUNING={stored}: each process tunes anew", wanted)


def _allowed_cpus(system: System) -> int:
    for line in system.lines("proc/self/status"):
        if line.startswith("Cpus_allowed_list:"):
            return len(parse_cpu_list(line.partition(":")[2]))
    return len(parse_cpu_list(system.text("sys/devices/system/cpu/online")))


def _cpu_quota(system: System) -> float | None:
    """CPUs' worth of time that the control groups grant; None without a limit."""
    found = []
    try:
        group = system.cgroup("cpu")
    except Unreadable:
        return None
    for folder in group.folders:
        at = str(folder.relative_to(system.root))
        try:
            if group.version == 2:
                quota, period = system.text(f"{at}/cpu.max").split()
            else:
                quota, period = system.text(f"{at}/cpu.cfs_quota_us"), system.text(f"{at}/cpu.cfs_period_us")
        except (Unreadable, ValueError):
            continue
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
    return min(found, default=None)
