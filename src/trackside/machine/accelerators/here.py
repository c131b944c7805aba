"""Which of the sheet's accelerators this machine has, and what was measured on them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trackside.machine.accelerators.sheet import accelerators, simplified
from trackside.machine.ceilings import floor_ceilings, kept_ceilings
from trackside.machine.facts import MachineFacts, gpu_numbered
from trackside.records.errors import TracksideError

__all__ = ["Present", "present"]


@dataclass(frozen=True, slots=True)
class Present:
    """A GPU of this machine."""

    device: str | None
    """`cuda:N`; None where CUDA_VISIBLE_DEVICES hides it."""
    name: str | None
    accelerator: str | None
    """Its name in the sheet; None where the sheet lacks it."""
    measured: tuple[dict[str, Any], ...]
    """Stored ceilings, with the fields of a ceilings record."""


def present(machine: MachineFacts, cache: Path) -> tuple[Present, ...]:
    """The GPUs of a machine.

    Args:
        machine: its facts.
        cache: the folder of measured ceilings. Nothing is measured here.
    """
    known = {simplified(name): row.name for row in accelerators() for name in row.device_names}
    numbers = {gpu_numbered(machine, number): number for number in range(len(machine.gpus))}
    found = []
    for gpu in machine.gpus:
        number = numbers.get(gpu.uuid or gpu.index)
        device = None if number is None else f"cuda:{number}"
        name = known.get(simplified(gpu.name or ""))
        found.append(Present(device, gpu.name, name, _measured(machine, device, cache)))
    return tuple(found)


def _measured(machine: MachineFacts, device: str | None, cache: Path) -> tuple[dict[str, Any], ...]:
    if device is None:
        return ()
    fields = ("name", "value", "unit", "n", "spread", "method", "measured_at")
    found = {
        name: {field: row[field] for field in fields}
        for name, row in kept_ceilings(device, cache, machine).items()
        if row["unit"] in ("B/s", "FLOP/s")
    }
    try:
        stored = floor_ceilings(device, cache, measure=False, machine=machine)
    except TracksideError:
        return tuple(found.values())  # with nothing stored the sheet stands alone
    values = {"gpu.memory.read": stored.dram_read, "gpu.memory.write": stored.dram_write}
    for name, value in values.items():
        row = (name, value, "B/s", stored.n, stored.spread, stored.method, stored.measured_at)
        found.setdefault(name, dict(zip(fields, row, strict=True)))
    return tuple(found.values())
