"""Builds a tree whose nodes know their parents: garbage that only the collector finds."""

import torch


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randint(0, 100, (4000,), generator=g, device=device),)


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
