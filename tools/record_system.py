"""Records what the doctor's probes read on this machine: `python tools/record_system.py FOLDER`.

Only files that a probe asked for, and environment variables and packages of this field only.
"""

import contextlib
import json
import os
import re
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from trackside.machine.doctor.probe import examine
from trackside.machine.doctor.system import GPUS_FILE, PYTHON_FILE, ROOM_FILE, System, Unreadable
from trackside.machine.gpu_state import read_gpus
from trackside.machine.system_files import Unknown

_MOST_BYTES = 64 << 10
# What libraries of the field read; anything else is nobody's business.
_VARIABLES = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NV|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|OMP|MKL|KMP|GOMP|OPENBLAS|HF|"
    r"TOKENIZERS|UCX|MALLOC|LD_PRELOAD|LD_LIBRARY_PATH|PYTHON|GLIBC|XLA|VLLM|SLURM|KUBERNETES)[A-Z0-9_]*"
)
# Folders whose files' names say more about an owner than about a machine.
_OWNERS = ("etc", "proc/self")
_USUAL_MOUNT = re.compile(r"/(dev|proc|sys|run|tmp|boot|home|mnt|data)?(/(shm|pts|fs/cgroup(/\w+)?))?$")
_KNOWN_ARGUMENT = re.compile(
    r"(iommu|intel_iommu|amd_iommu|mitigations|isolcpus|nohz_full|rcu_nocbs|transparent_hugepage|hugepages|"
    r"hugepagesz|default_hugepagesz|pcie_aspm|pci|processor|intel_idle|numa_balancing|nmi_watchdog|tsc|idle|"
    r"clocksource|nosmt|quiet|ro|rw|console|numa|audit|cgroup|systemd)\b"
)
_PACKAGES = re.compile(
    r"(torch|triton|numpy|nvidia-.*|cuda-.*|transformers|vllm|flash-attn.*|deepspeed|accelerate|xformers|"
    r"bitsandbytes|tensorrt.*|nccl.*|pynvml|tokenizers|datasets|safetensors|psutil)"
)


def main(folder: Path) -> None:
    system = System()
    examine(system)
    for path in sorted(system.seen):
        _copy(path, folder)
    environment = {n: v for n, v in os.environ.items() if _VARIABLES.fullmatch(n) and n != "PYTHONPATH"}
    _write(folder / "proc/self/environ", "\n".join(f"{n}={v}" for n, v in sorted(environment.items())))
    gpus = read_gpus()
    document = (
        {"unknown": vars_of(gpus)} if isinstance(gpus, Unknown) else {"gpus": [_nameless(g) for g in gpus]}
    )
    _write(folder / GPUS_FILE, json.dumps(document, indent=1, sort_keys=True))
    _write(folder / ROOM_FILE, json.dumps({"folders": _rooms(system)}, indent=1, sort_keys=True))
    packages = {name: version for name, version in system.packages.items() if _PACKAGES.fullmatch(name)}
    _write(folder / PYTHON_FILE, json.dumps({"packages": packages}, indent=1, sort_keys=True))


def _rooms(system: System) -> dict[str, dict[str, int]]:
    found = {}
    for folder in system.rooms:
        with contextlib.suppress(Unreadable):
            found[folder] = asdict(system.room(folder))
    return found


def _nameless(gpu: dict[str, Any]) -> dict[str, Any]:
    return gpu | {"uuid": f"GPU-00000000-0000-0000-0000-{gpu['index']:012}"}


def vars_of(unknown: Unknown) -> dict[str, str]:
    return {"what": unknown.what, "why": unknown.why}


def _copy(path: str, folder: Path) -> None:
    source, target = Path("/") / path, folder / _without_names(path)
    try:
        if source.is_symlink() and not source.exists():
            return
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for name in sorted(os.listdir(source))[:512]:
                if (source / name).is_dir():
                    (target / name).mkdir(exist_ok=True)
                elif path not in _OWNERS and not (target / name).exists():
                    (target / name).touch()
            return
        with source.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return
    _write(target, _scrubbed(path, data.decode("utf-8", "replace")))


def _scrubbed(path: str, text: str) -> str:
    """Without what names an owner: private mounts, names of groups, arguments that are no kernel's."""
    if path == "proc/self/mountinfo":
        kept = (line for line in text.splitlines() if _USUAL_MOUNT.match(line.split()[4]))
        return "\n".join(kept) + "\n"
    if path == "proc/self/cgroup":
        return _without_names(text)
    if path == "proc/sys/kernel/osrelease":
        return text.split("-")[0].strip() + "\n"
    if path == "proc/cmdline":
        return " ".join(word for word in text.split() if _KNOWN_ARGUMENT.match(word)) + "\n"
    return text


def _without_names(text: str) -> str:
    """With the control groups of this process numbered instead of named."""
    for i, name in enumerate(_groups(), 1):
        text = text.replace(f"/{name}", f"/group-{i}")
    return text


@cache
def _groups() -> list[str]:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return [part for line in lines for part in line.split(":", 2)[2].split("/") if part]


def _write(target: Path, text: str) -> None:
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
