"""Probes of attention: whether packages offer what the GPU's generation can do."""

from __future__ import annotations

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, probe, warns
from trackside.machine.doctor.probes.common_facts import version
from trackside.machine.doctor.probes.gpu_state import Gpu, find_gpus
from trackside.machine.doctor.system import System

# FlashAttention packages that were written for a generation (major compute capability).
_FLASH = {9: ("flash-attn-3", "flash-attn-4"), 10: ("flash-attn-4",)}
# The first PyTorch in which programs can choose cuDNN's attention without a variable.
_CUDNN_SINCE = (2, 5)


@probe("attention.hopper-kernels")
def hopper_kernels(system: System) -> Outcome:
    gpus = find_gpus(system)
    if isinstance(gpus, Outcome):
        return gpus
    majors = _majors(gpus) & _FLASH.keys()
    if not majors:
        return not_applicable("no GPU of the Hopper or data-center Blackwell generation")
    fitting = _FLASH[min(majors)]
    there = [name for name in fitting if name in system.packages]
    wanted = " or ".join(fitting)
    if there:
        return passes(", ".join(f"{name} {system.packages[name]}" for name in there), wanted)
    if "flash-attn" not in system.packages:
        return not_applicable("no FlashAttention package is installed: attention.cudnn comes first")
    return warns(f"flash-attn {system.packages['flash-attn']} only", wanted)


@probe("attention.cudnn")
def cudnn(system: System) -> Outcome:
    gpus = find_gpus(system)
    torch = version(system, "torch")
    if isinstance(gpus, Outcome):
        return gpus
    if not _majors(gpus) & _FLASH.keys():
        return not_applicable("no GPU of the Hopper or data-center Blackwell generation")
    if torch is None:
        return not_applicable("PyTorch is not installed here")
    if system.packages["torch"].endswith("+cpu"):
        return not_applicable("this PyTorch is built for the CPU only")
    wanted = f"PyTorch {_CUDNN_SINCE[0]}.{_CUDNN_SINCE[1]} or later, which lets programs choose cuDNN"
    found = f"PyTorch {system.packages['torch']}"
    return passes(found, wanted) if torch >= _CUDNN_SINCE else warns(found, wanted)


def _majors(gpus: tuple[Gpu, ...]) -> set[int]:
    return {int(gpu["compute_capability"].split(".")[0]) for gpu in gpus if gpu.get("compute_capability")}
