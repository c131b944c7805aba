"""A sequence that grows step by step, without an optimizer. `problem:` names the rule that finds it."""

import torch

torch.manual_seed(0)
cell = torch.nn.GRUCell(64, 64)
state = torch.zeros(64, 64)
kept = torch.empty(64, 0, 64)
with torch.no_grad():
    for _ in range(3000):
        state = cell(state, state)
        kept = torch.cat([kept, state[:, None]], dim=1)  # problem: cat-in-loop
