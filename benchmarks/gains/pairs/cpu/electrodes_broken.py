"""looped-products: imagined movements are told from the covariances of electrodes, trial by trial."""

import torch
from torch import nn


def setup(seed, device):
    torch.manual_seed(seed)
    waves = torch.fft.rfftfreq(160, 1 / 120, device=device)
    band = torch.exp(-((waves - 14) / 8).square())
    return band, nn.Linear(24 * 24, 4).to(device).requires_grad_(False)


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(200, 24, 160, generator=g, device=device)


def run(state, trials):
    band, head = state
    trials = torch.fft.irfft(torch.fft.rfft(trials) * band, n=160)
    trials = trials - trials.mean(dim=1, keepdim=True)
    spread = torch.stack([trial @ trial.T for trial in trials])
    spread = spread / spread.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None]
    return spread, torch.softmax(head(spread.flatten(1)), dim=1)
