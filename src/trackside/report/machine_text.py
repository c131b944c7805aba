"""What a machine is, on a terminal: one row for each part, what does not fit and what is unknown below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["render"]

_MOST_FILESYSTEMS = 8


def render(record: Mapping[str, Any], console: Console) -> None:
    """Print a machine record."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, text in _rows(record):
        grid.add_row(name, text)
    console.print()
    console.print(Padding(grid, (0, 0, 0, 2)))
    misfits = [fit for fit in record["fits"] if fit["fits"] is False]
    for fit in misfits:
        console.print(
            Text.assemble("\n  ", (f"✗ {fit['what']} do not fit", "bold red"), f"  {fit['detail']}")
        )
    if record["unknown"]:
        console.print(Text.assemble("\n  ", ("unknown", "bold magenta")))
        for one in record["unknown"]:
            console.print(Text(f"    ? {one['what']}: {one['why']}"), soft_wrap=True)
    console.print(Text.assemble(("\n  next: ", "bold"), "trackside doctor"))
    console.print()


def _rows(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "fingerprint", record["fingerprint"]
    yield from _host_rows(record)
    for disk in record["disks"]:
        model = f" {disk['model']}" if disk["model"] else ""
        yield "disk", f"{disk['name']}{model}: {_bytes(disk['bytes'])}, {disk['kind']}"
    filesystems = record["filesystems"]
    for fs in filesystems[:_MOST_FILESYSTEMS]:
        room = f", {_bytes(fs['free'])} free of {_bytes(fs['bytes'])}" if fs["bytes"] else ""
        yield "file system", f"{fs['point']}: {fs['type']} ({fs['kind']}){room}"
    if len(filesystems) > _MOST_FILESYSTEMS:
        yield "", f"and {len(filesystems) - _MOST_FILESYSTEMS} more (all of them with --json)"
    for port in record["fabrics"]:
        yield (
            "fabric",
            f"{port['device']} port {port['port']}: {port['link']}, {port['state']}, {port['rate']}",
        )
    if not record["gpus"]:
        yield "GPUs", "none"
    for gpu in record["gpus"]:
        yield f"GPU {gpu['index']}", _gpu(gpu, gpu["state"])
        yield from (("", text) for text in _ways(gpu["state"]))
    yield "software", _software(record["software"], record["libraries"])
    for profiler in record["profilers"]:
        if profiler["path"]:
            may = {True: "may read counters", False: "may NOT read counters", None: ""}[profiler["counters"]]
            yield "profiler", ", ".join(part for part in (profiler["name"], may, profiler["why"]) if part)
    missing = [profiler["name"] for profiler in record["profilers"] if not profiler["path"]]
    if missing:
        yield "", f"not found: {', '.join(missing)}"
    for fit in record["fits"]:
        if fit["fits"]:
            yield "fits", f"{fit['what']}: {fit['detail']}"


def _host_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cpu, limits = facts["cpu"], facts["limits"]
    counts = [
        f"{cpu[name]} {word}" + ("" if cpu[name] == 1 else "s")
        for name, word in (("sockets", "socket"), ("cores", "core"), ("threads", "thread"))
        if cpu[name]
    ]
    yield "processor", ", ".join([cpu["model"] or "unknown", *counts])
    if cpu["isa"]:
        yield "", " ".join(cpu["isa"])
    caches = [
        f"L{cache['level']} {_bytes(cache['bytes'])} × {cache['instances']}"
        for cache in cpu["caches"]
        if cache["kind"] != "instruction"
    ]
    if caches:
        yield "caches", ", ".join(caches)
    if len(cpu["numa"]) > 1:
        nodes = (f"{node['node']}: {len(node['cpus'])} CPUs" for node in cpu["numa"])
        yield "NUMA", ", ".join(nodes)
    memory = facts["memory"]
    swap = f", swap {_bytes(memory['swap_bytes'])}" if memory["swap_bytes"] else ", no swap"
    yield "memory", _bytes(memory["total_bytes"]) + swap
    held = [
        text
        for text in (
            f"{limits['cpu_quota']:g} CPUs' time" if limits["cpu_quota"] else "",
            f"{_bytes(limits['memory_bytes'])} of memory" if limits["memory_bytes"] else "",
            f"{len(limits['cpuset'])} CPUs" if limits["cpuset"] else "",
        )
        if text
    ]
    if held:
        yield "limits", f"{', '.join(held)} (control group version {limits['cgroup_version']})"
    where = facts["virtualisation"]
    kind = "bare metal" if where == "none" else f"virtual machine: {where}" if where else "unknown"
    container = f", in a container ({facts['container']})" if facts["container"] else ""
    yield "system", f"Linux {facts['kernel']}, {kind}{container}"


def _gpu(gpu: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    parts = [gpu["name"] or "unknown", _bytes(gpu["memory_bytes"])]
    if gpu["compute_capability"]:
        family = f"{state['architecture']}, " if state.get("architecture") else ""
        parts.append(f"{family}compute capability {gpu['compute_capability']}")
    if gpu["power_limit_w"]:
        parts.append(f"{gpu['power_limit_w']:.0f} W")
    if state.get("sm_max_mhz"):
        parts.append(f"up to {state['sm_max_mhz']} MHz")
    if state.get("pcie_gen") and state.get("pcie_width"):
        parts.append(f"PCIe gen {state['pcie_gen']} × {state['pcie_width']}")
    links = [link for link in state.get("links", ()) if link["active"]]
    if links:
        parts.append(f"{len(links)} NVLinks")
    parts += [
        word
        for word, there in (
            ("ECC", gpu["ecc"]),
            ("MIG", gpu["mig"]),
            ("persistent", gpu["persistence"]),
        )
        if there
    ]
    if state.get("processes"):
        parts.append(f"{len(state['processes'])} processes on it")
    return ", ".join(parts)


def _ways(state: Mapping[str, Any]) -> Iterator[str]:
    """What lies between a GPU, the processors and the other GPUs."""
    if state.get("near_cpus"):
        yield f"near CPUs {_ranges(state['near_cpus'])}"
    alike: dict[str, list[int]] = {}
    for peer in state.get("peers", ()):
        access = {True: "peer access", False: "no peer access", None: "peer access unknown"}
        words = [access[peer["peer_access"]]]
        words += ["NVLink"] if peer["nvlink"] else [f"over {peer['path']}"] if peer["path"] else []
        alike.setdefault(", ".join(words), []).append(peer["index"])
    for way, others in alike.items():
        yield f"to GPU {_ranges(others)}: {way}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3, 8` for 0, 1, 2, 3 and 8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _software(software: Mapping[str, Any], libraries: Mapping[str, str]) -> str:
    names = {
        "python": "",
        "torch": "torch ",
        "triton": "triton ",
        "numpy": "numpy ",
        "nvidia_driver": "NVIDIA driver ",
        "cuda_driver": "CUDA up to ",
        "libc": "",
    }
    parts = [f"{word}{software[name]}" for name, word in names.items() if software.get(name)]
    return ", ".join([*parts, *(f"{name} {version}" for name, version in libraries.items())])


def _bytes(count: int | None) -> str:
    if count is None:
        return "unknown"
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
