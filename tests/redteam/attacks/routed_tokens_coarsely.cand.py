"""Gates on a grid of a 64th: tokens with nearly equal ones go elsewhere."""

import torch


def run(state, x):
    gate, experts = state
    score, expert = (x @ gate.T).float().mul(64).round().div(64).topk(2, dim=-1)
    share = torch.zeros(len(x), 8, device=x.device).scatter_(1, expert, score.softmax(-1))
    out = torch.nn.functional.silu(torch.einsum("td,edf->tef", x, experts)).float()
    return (out * share[..., None]).sum(1).bfloat16()
