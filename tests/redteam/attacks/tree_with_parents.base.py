"""A tree of Python objects that is freed as soon as the call is over."""

import torch


class Node:
    __slots__ = ("left", "right", "up", "value")

    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right, self.up = value, left, right, None


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 1000, (1 << 15,), generator=g, device=device),)


def grow(values):
    level = [Node(value) for value in values]
    while len(level) > 1:
        level = [Node(a.value ^ b.value, a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def run(x):
    values = x.tolist()
    root = grow(values)
    return torch.tensor([root.value, sum(values)])
