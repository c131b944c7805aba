"""inverse-product: a receiver of many antennas tells apart what was sent on each carrier, and how surely."""

import torch


def setup(seed, device):
    noise = 0.2 * torch.eye(48, device=device)
    return noise, torch.tensor([-3.0, -1.0, 1.0, 3.0], device=device) / 5**0.5


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    channels = torch.randn(100, 64, 48, generator=g, device=device) / 8
    return channels, torch.randn(100, 64, 8, generator=g, device=device)


def run(state, channels, received):
    noise, levels = state
    back = channels.mT
    gram = back @ channels + noise
    sent = torch.linalg.inv(gram) @ (back @ received)
    surely = torch.log_softmax(-(sent.unsqueeze(-1) - levels).square() / 0.2, dim=-1)
    bits = surely.exp() @ levels
    left = (received - channels @ bits).square().mean(dim=(1, 2))
    return sent, surely, left
