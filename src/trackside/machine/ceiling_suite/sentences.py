"""What measured speeds mean for a workload, in sentences with the arithmetic in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trackside.records.ceilings import Ceiling, Sustained

__all__ = ["sentences"]

# A model of eight billion parameters in 16 bits: what many people serve on one GPU.
_MODEL_BYTES = 16e9
# From this loss on a long run is called slower; clocks alone wander by a percent.
_SLOWER = 0.03


def sentences(ceilings: Iterable[Ceiling], sustained: Iterable[Sustained]) -> list[str]:
    """One for each thing that decides how fast a workload can be at all."""
    table = {(one.place, one.name): one.value for one in ceilings}
    places = sorted({place for place, _ in table})
    found = [
        text
        for place in places
        if place.startswith("cuda")
        for text in _gpu(place, {name: value for (p, name), value in table.items() if p == place})
    ]
    for run in sustained:
        found.append(_sustained(run))
    disk = table.get(("disk", "disk.read.sequential"))
    if disk:
        found.append(
            f"At the speed measured here a 16 GB model takes at least {_MODEL_BYTES / disk:.0f} s to load "
            f"from this disk: it reads {f'{disk / 1e9:.2f} GB' if disk >= 1e9 else f'{disk / 1e6:.0f} MB'}/s."
        )
    return found


def _gpu(place: str, speeds: dict[str, float]) -> Iterator[str]:
    memory = speeds.get("gpu.memory.read")
    bf16 = speeds.get("gpu.gemm.bf16")
    if memory:
        yield (
            f"Decode on {place} is bound by {memory / 1e12:.2f} TB/s: a 16 GB model cannot exceed "
            f"{memory / _MODEL_BYTES:.0f} tokens/s at batch 1."
        )
    if memory and bf16:
        ridge = bf16 / memory
        yield (
            f"A bf16 kernel on {place} needs {ridge:.0f} FLOPs for each byte it reads to be bound by "
            f"arithmetic; a matrix product with fewer than {ridge:.0f} rows on one side is bound by memory."
        )
    launch, kernel = speeds.get("gpu.launch.operator"), speeds.get("gpu.kernel.in-graph")
    if launch and kernel:
        yield (
            f"Operators shorter than {launch:.1f} µs on {place} wait for Python to launch them; in a CUDA "
            f"graph a kernel costs {kernel:.1f} µs."
        )
    pinned, pageable = (
        speeds.get("gpu.copy.host-to-device.pinned"),
        speeds.get("gpu.copy.host-to-device.pageable"),
    )
    if pinned and pageable:
        yield (
            f"Copies to {place} take {pinned / pageable:.1f} times as long from pageable memory "
            f"({pageable / 1e9:.1f} GB/s) as from pinned memory ({pinned / 1e9:.1f} GB/s)."
        )


def _sustained(run: Sustained) -> str:
    loss = 1 - run.last / run.first
    held = f", held down by {', '.join(run.slowdowns)}" if run.slowdowns else ""
    drawn = f" at {run.power_w:.0f} W" if run.power_w is not None else ""
    if loss > _SLOWER:
        return (
            f"Under {run.seconds:.0f} s of bf16 products {run.place} loses {loss:.0%}: from "
            f"{run.first / 1e12:.0f} to {run.last / 1e12:.0f} TFLOP/s{drawn}{held}."
        )
    kept = f"{run.last / 1e12:.0f} TFLOP/s{drawn}{held}"
    return f"Under {run.seconds:.0f} s of bf16 products {run.place} keeps {kept}."
