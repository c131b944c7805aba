"""A native candidate: `run`, and nothing else of its own."""

import torch

inputs = "what a candidate says of its inputs does not count"
tolerance = 0.9


def run(state, rows, weights):
    return torch.softmax(rows * (1 / state["temperature"]), dim=-1).mul_(weights)
