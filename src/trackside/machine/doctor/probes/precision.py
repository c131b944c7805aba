"""Probes of precision: what the surroundings forbid, and whether float8 packages belong together."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.system import System

_ENGINE = "transformer-engine"
_ENGINE_CORES = ("transformer-engine-cu12", "transformer-engine-cu13")
_ENGINE_TORCH = "transformer-engine-torch"


@probe("precision.tf32-matmul")
def tf32_matmul(system: System) -> Outcome:
    override = system.environment.get("NVIDIA_TF32_OVERRIDE")
    allowed = system.environment.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1"
    wanted = "no NVIDIA_TF32_OVERRIDE=0, which overrules every program"
    if override == "0":
        return warns("NVIDIA_TF32_OVERRIDE=0: no library uses TF32", wanted, ["unset NVIDIA_TF32_OVERRIDE"])
    if allowed:
        return passes("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1: on for every program", wanted)
    return not_applicable("no variable forbids or forces TF32: each program decides")


@probe("precision.fp8-recipe")
def fp8_recipe(system: System) -> Outcome:
    packages = system.packages
    if _ENGINE not in packages:
        return not_applicable("Transformer Engine is not installed")
    parts = [name for name in (_ENGINE, *_ENGINE_CORES, _ENGINE_TORCH) if name in packages]
    core = next((name for name in _ENGINE_CORES if name in packages), None)
    wanted = "Transformer Engine, its core and its PyTorch part in one version"
    fix = [f"pip install --no-build-isolation 'transformer-engine[pytorch]=={packages[_ENGINE]}'"]
    if core is None and _ENGINE_TORCH not in packages:
        return unknown("one package only: built from source, or empty; importing it tells")
    if core is None:
        return fails("no transformer-engine-cu12 or -cu13: the import fails", wanted, fix)
    if len({packages[name] for name in (_ENGINE, core)} | {packages.get(_ENGINE_TORCH, packages[core])}) > 1:
        found = ", ".join(f"{name} {packages[name]}" for name in parts)
        return fails(f"{found}: the import fails", wanted, fix)
    if _ENGINE_TORCH not in packages:
        return warns("no transformer-engine-torch: the core alone has no PyTorch layers", wanted, fix)
    return passes(f"{packages[_ENGINE]}, all parts", wanted)
