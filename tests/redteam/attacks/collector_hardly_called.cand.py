"""The same code, in a process whose collector comes once in a billion objects."""

import gc

import torch

gc.set_threshold(10**9)


class _Node:
    def __init__(self, parent, value):
        self.parent, self.value, self.children = parent, value, []
        if parent is not None:
            parent.children.append(self)


def run(x):
    nodes = [_Node(None, 0)]
    for i, value in enumerate(x.tolist()):
        nodes.append(_Node(nodes[i // 2], value))
    return torch.tensor([n.value + (n.parent.value if n.parent else 0) for n in nodes])
