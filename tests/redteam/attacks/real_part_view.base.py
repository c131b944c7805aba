"""A bank of 24 symmetric filters applied one after the other in the frequency domain and summed.

60 kB of output.
"""

import torch


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"bank": torch.rand(24, 65, generator=g, device=device)}


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return (torch.randn(120, 128, generator=g, device=device),)


def run(state, x):
    spectrum = torch.fft.rfft(x)
    total = torch.zeros_like(x)
    for response in state["bank"]:
        total = total + torch.fft.irfft(spectrum * response, n=128)
    return total
