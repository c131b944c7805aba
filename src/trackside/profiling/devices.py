"""The devices that are kept for a program of which nobody knows beforehand where it computes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

from trackside.machine.facts import MachineFacts, facts, visible_gpus
from trackside.store.lock import DeviceLock, gpu_key

__all__ = ["gpu_keys", "take_devices", "take_gpus"]

OnWait = Callable[[Mapping[str, Any]], None]


def take_devices(stack: contextlib.ExitStack, on_wait: OnWait, *, wait: bool | float = True) -> None:
    """Wait until nobody else measures on a device that the program may use, and keep it until the stack ends.

    These are all GPUs that CUDA_VISIBLE_DEVICES leaves it, and the CPUs: on a machine with GPUs too a program
    may compute there, and does at the least prepare its work there. With a GPU it shares the CPUs with others
    that have one of their own, so that they run side by side; whoever measures the CPUs alone waits for them,
    and they for it.

    Args:
        on_wait: gets the facts of who has one, as `DeviceLock` tells them.
        wait: for each, as `DeviceLock` has it.

    Raises:
        TracksideError: as `DeviceLock` does.
    """
    gpus = take_gpus(stack, on_wait, "profile", wait=wait)
    stack.enter_context(DeviceLock("cpu", wait, on_wait, verb="profile", shared=bool(gpus)))


def take_gpus(
    stack: contextlib.ExitStack, on_wait: OnWait, verb: str, *, wait: bool | float = True
) -> list[str]:
    """The GPUs alone, for who takes the CPUs afterwards; returns their keys."""
    keys = gpu_keys(facts(), os.environ)
    for key in keys:
        stack.enter_context(DeviceLock(key, wait, on_wait, verb=verb))
    return keys


def gpu_keys(machine: MachineFacts, environment: Mapping[str, str]) -> list[str]:
    """The keys of the GPUs that a program may use, in the order in which everyone takes them."""
    gpus = visible_gpus(machine, environment) if machine.gpus else []
    known = {gpu.uuid for gpu in machine.gpus}
    # CUDA_VISIBLE_DEVICES ends for CUDA at a UUID that no GPU has.
    usable = takewhile(lambda gpu: gpu in known or not str(gpu).startswith("GPU-"), gpus)
    return sorted({gpu_key(gpu) for gpu in usable})
