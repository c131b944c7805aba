"""Probes of measurement: what in the surroundings falsifies times."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, passes, probe, warns
from trackside.machine.doctor.probes.gpu_state import few
from trackside.machine.doctor.system import System

# Libraries that the driver or NVTX loads into every program: profilers and tracers.
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
# Each makes torch.compile forget what it compiled; the value that does so.
_FORGETTING = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
}


@probe("measurement.profiler-overhead")
def profiler_overhead(system: System) -> Outcome:
    given = [name for name in _INJECTED if system.environment.get(name, "") not in ("", "0")]
    wanted = "no profiler that is loaded into every program"
    if not given:
        return passes("none", wanted)
    return warns(f"{few(given)} set", wanted, [f"unset {' '.join(given)}"])


@probe("measurement.compile-apart")
def compile_apart(system: System) -> Outcome:
    environment = system.environment
    given = [name for name, value in _FORGETTING.items() if environment.get(name) == value]
    wanted = "compile caches on, except in a run that measures cold starts"
    if not given:
        return passes("no variable switches compile caches off", wanted)
    found = few(f"{name}={environment[name]}" for name in given)
    return warns(f"{found}: each start compiles anew", wanted, [f"unset {' '.join(given)}"])
