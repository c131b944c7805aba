"""The arena that two processes share."""

import ctypes
import itertools
import os

import torch

from trackside.workload import memory
from trackside.workload.memory import Arena, ArenaShape


def new_arena(shape: ArenaShape) -> Arena:
    fd = memory.host_file(shape)
    arena = Arena.create_host(shape, fd)
    os.close(fd)
    return arena


def test_slots_do_not_overlap_and_parts_start_on_pages() -> None:
    shape = ArenaShape(slots=3, input_bytes=5000, output_bytes=1)
    places = sorted(
        (at, at + size)
        for slot in range(3)
        for at, size in (
            (shape.inputs_at(slot), 5000),
            (shape.outputs_at(slot), 1),
            (shape.guard_at(slot), 4096),
        )
    )
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(places))
    assert all(start % 4096 == 0 for start, _ in places)
    assert places[-1][1] == shape.total


def test_two_mappings_of_one_arena_see_the_same_bytes() -> None:
    shape = ArenaShape(2, 4096, 4096)
    fd = memory.host_file(shape)
    ours = Arena.create_host(shape, fd)
    theirs = memory.arena_from_message({"shape": ours.shape.to_json()}, [os.dup(fd)], None)
    os.close(fd)
    source = torch.arange(256, dtype=torch.uint8)
    memory.HostMemory().copy(theirs.outputs_at(1), source.data_ptr(), 256)
    target = torch.zeros(256, dtype=torch.uint8)
    memory.HostMemory().copy(target.data_ptr(), ours.outputs_at(1), 256)
    assert torch.equal(source, target)


def test_a_write_past_a_slot_is_noticed() -> None:
    arena = new_arena(ArenaShape(2, 100, 100))
    assert arena.guards_intact()
    ctypes.memset(arena.outputs_at(0), 0, 4096)
    assert arena.guards_intact()
    ctypes.memset(arena.outputs_at(0) + 4096, 0, 1)
    assert not arena.guards_intact()


def test_a_zero_size_arena_still_has_a_guard() -> None:
    arena = new_arena(ArenaShape(1, 0, 0))
    assert arena.shape.total == 4096
    assert arena.guards_intact()
