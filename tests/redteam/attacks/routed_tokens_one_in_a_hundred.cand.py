"""Every hundredth token goes to a wrong second expert."""

import torch


def run(state, x):
    gate, experts = state
    score, expert = (x @ gate.T).float().topk(2, dim=-1)
    expert[::100, 1] = (expert[::100, 1] + 1) % 8
    share = torch.zeros(len(x), 8, device=x.device).scatter_(1, expert, score.softmax(-1))
    out = torch.nn.functional.silu(torch.einsum("td,edf->tef", x, experts)).float()
    return (out * share[..., None]).sum(1).bfloat16()
