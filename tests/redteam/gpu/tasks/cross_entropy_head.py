"""Logits over a large vocabulary and their mean cross entropy, written out; bf16 products on a GPU."""

import torch


def _facts(device):
    gpu = str(device).startswith("cuda")
    return (2048, 1024, 32000, torch.bfloat16) if gpu else (16, 32, 100, torch.float32)


def setup(seed, device):
    _, width, words, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    return {"head": (torch.randn(words, width, generator=g, device=device) * width**-0.5).to(dtype)}


def inputs(seed, device):
    rows, width, words, dtype = _facts(device)
    g = torch.Generator(device).manual_seed(seed)
    x = (2 * torch.randn(rows, width, generator=g, device=device)).to(dtype)
    return x, torch.randint(words, (rows,), generator=g, device=device)


def run(state, x, target):
    logits = (x @ state["head"].t()).float()
    logp = logits - torch.logsumexp(logits, -1, keepdim=True)
    return -logp.gather(1, target[:, None]).mean()
