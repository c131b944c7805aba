"""torch's batch norm, which updates the running statistics itself."""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {
        "gamma": torch.randn(32, generator=g, device=device),
        "beta": torch.randn(32, generator=g, device=device),
        "running_mean": torch.zeros(32, device=device),
        "running_var": torch.ones(32, device=device),
    }


def run(state, x):
    return torch.nn.functional.batch_norm(
        x,
        state["running_mean"],
        state["running_var"],
        state["gamma"],
        state["beta"],
        training=True,
        momentum=0.1,
    )
