"""Probes of kernels: how they are built, and what cuBLAS may use."""

from __future__ import annotations

import re

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.probes.gpu_state import Gpu, few, find_gpus
from trackside.machine.doctor.system import System

# KiB that NVIDIA recommends for cuBLAS, from Hopper on and before.
_WORKSPACE_HOPPER, _WORKSPACE_BEFORE = 32_768, 4_096
_HOPPER = 9
# Read by nvcc itself and, the last, by CMake.
_COMPILER_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDAFLAGS")
# Names that PyTorch takes in place of numbers.
_ARCHITECTURES = {
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}


@probe("kernels.arch-list")
def arch_list(system: System) -> Outcome:
    given = system.environment.get("TORCH_CUDA_ARCH_LIST", "")
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    capabilities = _capabilities(gpus)
    if not capabilities:
        return not_applicable("there is no GPU whose architecture is known")
    wanted = f"not set, or a list with {few(capabilities)}"
    if given in ("", "native"):
        return passes("not set: built for the GPUs that are visible", wanted)
    entries: list[tuple[int, int, str, bool]] = []
    for word in ";".join(_ARCHITECTURES.get(word, word) for word in re.split(r"[\s;]+", given) if word).split(
        ";"
    ):
        entry = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", word)
        if not entry:
            return unknown(f"TORCH_CUDA_ARCH_LIST has {word!r}, which is no architecture")
        entries.append((int(entry[1]), int(entry[2]), entry[3], bool(entry[4])))
    fix = [f"export TORCH_CUDA_ARCH_LIST='{';'.join(capabilities)}'"]
    for capability in capabilities:
        major, minor = (int(part) for part in capability.split("."))
        if any(_runs(entry, major, minor) for entry in entries):
            continue
        if any(ptx and not suffix and (a, b) <= (major, minor) for a, b, suffix, ptx in entries):
            return warns(
                f"{given}: only PTX for {capability}, compiled by the driver at the first load", wanted, fix
            )
        return warns(f"{given}: nothing for {capability}; what is built here does not run", wanted, fix)
    return passes(given, wanted)


@probe("kernels.cublas-workspace")
def cublas_workspace(system: System) -> Outcome:
    config = system.environment.get("CUBLAS_WORKSPACE_CONFIG")
    light = system.environment.get("CUBLASLT_WORKSPACE_SIZE")
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    majors = [int(capability.split(".")[0]) for capability in _capabilities(gpus)]
    if not majors:
        return not_applicable("there is no GPU whose architecture is known")
    needed = _WORKSPACE_HOPPER if max(majors) >= _HOPPER else _WORKSPACE_BEFORE
    wanted = f"not set, or at least {needed:,} KiB"
    sizes: dict[str, tuple[str, int]] = {}
    if config is not None:
        pairs = re.findall(r":(\d+):(\d+)", config)
        sizes["CUBLAS_WORKSPACE_CONFIG"] = (config, sum(int(size) * int(count) for size, count in pairs))
    if light is not None and light.isdigit():
        sizes["CUBLASLT_WORKSPACE_SIZE"] = (light, int(light))
    small = [name for name, (_, size) in sizes.items() if size < needed]
    if small:
        found = few(f"{name}={sizes[name][0]}, {sizes[name][1]:,} KiB" for name in small)
        return warns(found, wanted, [f"unset {' '.join(small)}"])
    return passes(few(f"{name}={text}" for name, (text, _) in sizes.items()) or "not set", wanted)


@probe("kernels.lineinfo")
def lineinfo(system: System) -> Outcome:
    return _without(system, ("-G", "--device-debug"), "each kernel is compiled for debugging, unoptimised")


@probe("kernels.fast-math")
def fast_math(system: System) -> Outcome:
    return _without(
        system, ("-use_fast_math", "--use_fast_math"), "all code is compiled with fast mathematics"
    )


@probe("kernels.tensor-core-alignment")
def tensor_core_alignment(system: System) -> Outcome:
    value = system.environment.get("TORCHINDUCTOR_SHAPE_PADDING")
    wanted = "TORCHINDUCTOR_SHAPE_PADDING=1 or not set"
    if value is None:
        return not_applicable("Inductor pads by default; the dimensions themselves are the model's")
    if value == "1":
        return passes("1: Inductor pads products", wanted)
    return warns(f"{value}: Inductor does not pad products", wanted, ["unset TORCHINDUCTOR_SHAPE_PADDING"])


def _capabilities(gpus: tuple[Gpu, ...]) -> list[str]:
    return sorted({gpu["compute_capability"] for gpu in gpus if gpu.get("compute_capability")})


def _runs(entry: tuple[int, int, str, bool], major: int, minor: int) -> bool:
    """Whether code for an architecture runs as it is: with `a` there alone, else on later minors."""
    same = entry[0] == major
    return same and (entry[1] == minor if entry[2] == "a" else entry[1] <= minor)


def _without(system: System, flags: tuple[str, ...], cost: str) -> Outcome:
    having = {
        name: flag
        for name in _COMPILER_VARIABLES
        for flag in flags
        if flag in system.environment.get(name, "").split()
    }
    wanted = f"no {flags[0]} in {', '.join(_COMPILER_VARIABLES)}"
    if having:
        found = few(f"{flag} in {name}" for name, flag in having.items())
        return warns(f"{found}: {cost}", wanted, [f"unset {' '.join(having)}"])
    return passes("no such flag is given to every build", wanted)
