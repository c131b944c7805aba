"""The devices that a profile keeps other measurements off while its program runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from trackside.machine.facts import MachineFacts, facts, visible_gpus
from trackside.store.lock import DeviceLock, gpu_key

__all__ = ["device_keys", "take_devices"]


def take_devices(stack: contextlib.ExitStack, on_wait: Callable[[Mapping[str, Any]], None]) -> None:
    """Wait until nobody else measures on a device that the program may use, and keep it until the stack ends.

    Args:
        on_wait: gets the facts of who has one, as `DeviceLock` tells them.
    """
    for key in device_keys(facts(), os.environ):
        stack.enter_context(DeviceLock(key, verb="profile", on_wait=on_wait))


def device_keys(machine: MachineFacts, environment: Mapping[str, str]) -> list[str]:
    """The keys of a program's devices, in the order in which every profile takes them.

    Nobody knows beforehand which GPUs a program will use: these are all that CUDA_VISIBLE_DEVICES leaves it.
    Where there are some the CPUs are not among its devices, as they are not of a comparison on a GPU: so
    programs on different GPUs are profiled side by side.
    """
    gpus = visible_gpus(machine, environment) if machine.gpus else []
    return sorted({gpu_key(gpu) for gpu in gpus}) or ["cpu"]
