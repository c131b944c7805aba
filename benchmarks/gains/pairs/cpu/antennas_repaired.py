"""inverse-product: solved."""

import torch


def run(state, channels, received):
    noise, levels = state
    back = channels.mT
    gram = back @ channels + noise
    sent = torch.linalg.solve(gram, back @ received)
    surely = torch.log_softmax(-(sent.unsqueeze(-1) - levels).square() / 0.2, dim=-1)
    bits = surely.exp() @ levels
    left = (received - channels @ bits).square().mean(dim=(1, 2))
    return sent, surely, left
