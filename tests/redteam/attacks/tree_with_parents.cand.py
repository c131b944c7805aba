"""The same tree with a link from a leaf to the root: only the garbage collector frees it."""

import torch


class Node:
    __slots__ = ("left", "right", "up", "value")

    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right, self.up = value, left, right, None


def grow(values):
    level = [Node(value) for value in values]
    while len(level) > 1:
        level = [Node(a.value ^ b.value, a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def run(x):
    values = x.tolist()
    root = leaf = grow(values)
    while leaf.left is not None:
        leaf = leaf.left
    leaf.up = root
    return torch.tensor([root.value, sum(values)])
