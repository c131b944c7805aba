"""What passes between the reference process and the arms: inputs in, private copies of outputs out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from trackside.records.errors import TracksideError
from trackside.workload import cuda, memory, tree
from trackside.workload.memory import ALIGN, Arena, ArenaShape, align

__all__ = ["Exchange", "find_device"]

# How much of a large input is read after a timed call.
_WINDOW_BYTES = 4 << 20
# Of the device's free memory, for private copies made beforehand.
_RESERVED_SHARE = 0.25


class Exchange:
    """The arms' arenas, and private copies of what calls left there."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._driver = None if device == "cpu" else cuda.Driver()
        self._memory: memory.Memory = (
            memory.HostMemory() if self._driver is None else memory.CudaMemory(self._driver)
        )
        self._arenas: dict[str, Arena] = {}
        self._taken: dict[int, torch.Tensor] = {}
        self._spare: list[torch.Tensor] = []
        self._spare_bytes = 0

    def synchronize(self) -> None:
        self._memory.synchronize()

    def free_memory(self) -> int | None:
        """Bytes free on the device; None for a CPU."""
        return self._driver.free_memory() if self._driver is not None else None

    def arena(self, arm: str, shape: ArenaShape, fds: list[int]) -> dict[str, Any]:
        """Share new memory with an arm, in place of what it had: the file that came, or a handle."""
        old = self._arenas.pop(arm, None)
        if old is not None:
            self._free(old)
        if self._driver is not None:
            self._arenas[arm], handle = Arena.create_cuda(shape, self._driver)
            return {"handle": handle}
        fd = fds.pop(0)
        self._arenas[arm] = Arena.create_host(shape, fd)
        os.close(fd)
        return {}

    def drop_arenas(self) -> None:
        """Free both arms' shared memory, so that who gets which part is decided anew."""
        for arm in list(self._arenas):
            self._free(self._arenas.pop(arm))

    def _free(self, arena: Arena) -> None:
        if self._driver is not None:
            self._driver.free(arena.base)
        else:
            arena.close()

    def fill(
        self,
        arm: str,
        slots: Sequence[int],
        given: Sequence[Sequence[torch.Tensor]],
        spec: Sequence[dict[str, Any]],
    ) -> None:
        """Put sets of inputs into slots."""
        arena, copy = self._arenas[arm], self._memory.copy
        for slot, tensors in zip(slots, given, strict=True):
            base = arena.inputs_at(slot)
            for tensor, facts in zip(tensors, spec, strict=True):
                copy(base + facts["offset"], tree.address(tensor)[0], facts["span"])
        self._memory.synchronize()

    def reserve(self, size: int, count: int) -> None:
        """Make private buffers, touched beforehand so that taking a copy never faults pages in."""
        self._spare, self._spare_bytes = [], size
        free = self.free_memory()
        if free is not None:
            # What finds none is given memory when it is taken.
            count = min(count, int(_RESERVED_SHARE * free) // max(1, size))
        self._spare = [torch.zeros(size, dtype=torch.uint8, device=self._device) for _ in range(count)]
        self._memory.synchronize()

    def take(self, arm: str, slots: Sequence[int], calls: Sequence[int], sizes: Sequence[int]) -> bool:
        """Take private copies of what calls left in slots; whether the guards between slots are intact."""
        arena = self._arenas[arm]
        for slot, call, size in zip(slots, calls, sizes, strict=True):
            size = min(size, arena.shape.output_bytes)
            buffer = (
                self._spare.pop()
                if self._spare and self._spare[-1].numel() >= size
                else torch.empty(arena.shape.output_bytes, dtype=torch.uint8, device=self._device)
            )
            self._memory.copy(tree.address(buffer)[0], arena.outputs_at(slot), size)
            self._taken[call] = buffer
        self._memory.synchronize()
        return arena.guards_intact()

    def take_inputs(
        self, arm: str, slot: int, call: int, leaves: Sequence[int], spec: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Take a private copy of some inputs as a call left them in the arena, like its outputs."""
        arena, found, at = self._arenas[arm], [], 0
        for i in leaves:
            known = {k: spec[i][k] for k in ("dtype", "shape", "stride", "span")}
            known |= {"path": f"in:{i}", "kind": "tensor", "device": self._device}
            found.append(known | {"copied": True, "offset": at})
            at += align(known["span"], ALIGN)
        buffer = torch.empty(max(at, self._spare_bytes), dtype=torch.uint8, device=self._device)
        for i, fact in zip(leaves, found, strict=True):
            source = arena.inputs_at(slot) + spec[i]["offset"]
            self._memory.copy(tree.address(buffer)[0] + fact["offset"], source, fact["span"])
        self._memory.synchronize()
        self._taken[call] = buffer
        return found

    def inputs_changed(
        self,
        arm: str,
        slot: int,
        given: Sequence[torch.Tensor],
        spec: Sequence[dict[str, Any]],
        window: float | None,
    ) -> dict[str, Any]:
        """Which inputs in a slot differ, bit for bit, from what was put there; large ones in a window."""
        arena, changed = self._arenas[arm], {}
        for i, (tensor, facts) in enumerate(zip(given, spec, strict=True)):
            size, start = facts["span"], 0
            if window is not None and size > _WINDOW_BYTES:
                start = int(window * (size - _WINDOW_BYTES)) // ALIGN * ALIGN
                size = _WINDOW_BYTES
            if not size:
                continue
            there = arena.inputs_at(slot) + facts["offset"] + start
            put = tree.address(tensor)[0] + start
            if self._driver is None and memory.same_bytes(there, put, size):
                continue
            seen = torch.empty(size, dtype=torch.uint8, device=self._device)
            kept = torch.empty(size, dtype=torch.uint8, device=self._device)
            self._memory.copy(tree.address(seen)[0], there, size)
            self._memory.copy(tree.address(kept)[0], put, size)
            self._memory.synchronize()
            if not torch.equal(seen, kept):
                first = _first_difference(kept, seen, tensor.dtype)
                changed[str(i)] = first | {"element": start // tensor.element_size() + first["element"]}
        return changed

    def same_bytes(self, first: int, second: int, leaves: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The first output leaf of two takes of one call that differs; empty where none does."""
        for fact in leaves:
            if (
                fact.get("copied")
                and fact["kind"] == "tensor"
                and fact["path"].startswith("out")
                and fact["span"]
            ):
                a, b = (
                    self._taken[call][fact["offset"] : fact["offset"] + fact["span"]]
                    for call in (first, second)
                )
                if not torch.equal(a, b):
                    return {"path": fact["path"], **_first_difference(a, b, tree.DTYPES[fact["dtype"]])}
        return {}

    def forget(self, calls: Sequence[int]) -> None:
        for call in calls:
            buffer = self._taken.pop(call, None)
            # One from before the slots were enlarged would be in the way of those that fit.
            if buffer is not None and buffer.numel() >= self._spare_bytes:
                self._spare.append(buffer)

    def leaf(self, call: int, fact: dict[str, Any]) -> Any:
        """One leaf of what a call returned, out of the private copy."""
        if fact["kind"] == "value":
            return tree.decode_value(fact["value"])
        dtype = tree.DTYPES[fact["dtype"]]
        if not fact["span"]:
            return torch.empty(fact["shape"], dtype=dtype, device=self._device)
        if "offset" not in fact:
            raise TracksideError(
                "workload",
                f"its output {fact['path']} on {fact['device']} could not be read; needed: memory on "
                f"{self._device} or cpu",
                "return outputs on the device that `inputs` was asked for",
            )
        raw = self._taken[call][fact["offset"] : fact["offset"] + fact["span"]]
        tensor = torch.as_strided(raw.view(dtype), fact["shape"], fact["stride"])
        tensor = tensor.conj() if fact.get("conj") else tensor
        return tensor.neg() if fact.get("neg") else tensor


def _first_difference(was: torch.Tensor, now: torch.Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """The first element in which two stretches of bytes differ, and what each says there."""
    at = int(torch.nonzero(was != now).reshape(-1)[0]) // dtype.itemsize
    return {"element": at, "was": str(_at(was, at, dtype)), "now": str(_at(now, at, dtype))}


def _at(raw: torch.Tensor, element: int, dtype: torch.dtype) -> Any:
    return raw[element * dtype.itemsize : (element + 1) * dtype.itemsize].clone().view(dtype)[0].item()


def find_device(device: str) -> None:
    """Use that GPU from now on, or say why it cannot be had."""
    count = torch.cuda.device_count()
    if torch.device(device).index >= count:
        had = "no GPU that torch can use" if not count else f"{count} GPU(s), numbered from 0"
        build = "" if torch.version.cuda else f"; torch {torch.__version__} is built without CUDA"
        raise TracksideError(
            "device",
            f"found {had}{build}; needed: {device}",
            "see `nvidia-smi` and CUDA_VISIBLE_DEVICES; install torch for CUDA, or use --device cpu",
        )
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
