"""Images in channels_last, and one update for all parameters."""

import torch
import torch.nn.functional as F


def run(model, images, labels):
    model.zero_grad()
    loss = F.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
    loss.backward()
    parameters = list(model.parameters())
    with torch.no_grad():
        torch._foreach_add_(parameters, [parameter.grad for parameter in parameters], alpha=-0.1)
    return loss.detach()
