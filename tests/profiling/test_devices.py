"""Which devices a profile keeps to itself: what its program may use, and no more."""

from dataclasses import replace

import pytest

from trackside.machine.facts import Gpu, MachineFacts, facts
from trackside.profiling.devices import device_keys


def machine(*uuids: str) -> MachineFacts:
    gpus = (
        Gpu(number, "H200", uuid, None, None, None, None, None, None, None, None, None)
        for number, uuid in enumerate(uuids)
    )
    return replace(facts(), gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("visible", "keys"),
    [
        # In one order, whatever the variable's: or two profiles would wait for each other.
        (None, ["gpu-GPU-a", "gpu-GPU-b"]),
        ("0,1", ["gpu-GPU-a", "gpu-GPU-b"]),
        ("1,0,1", ["gpu-GPU-a", "gpu-GPU-b"]),
        ("1", ["gpu-GPU-a"]),
        ("MIG-4f2a/1", ["gpu-MIG-4f2a-1"]),
        ("", ["cpu"]),
        ("-1", ["cpu"]),
    ],
)
def test_the_visible_gpus_are_taken_or_else_the_cpus(visible: str | None, keys: list[str]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert device_keys(machine("GPU-b", "GPU-a"), environment) == keys


def test_without_gpus_the_variable_means_nothing() -> None:
    assert device_keys(machine(), {"CUDA_VISIBLE_DEVICES": "0"}) == ["cpu"]
