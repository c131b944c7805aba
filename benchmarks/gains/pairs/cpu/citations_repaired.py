"""copy-before-product: multiplied as it lies."""

import torch


def run(layers, papers, cites):
    first, last = layers
    hidden = torch.relu(first(papers))
    heard = cites.t() @ hidden / cites.sum(dim=0).unsqueeze(1)
    return torch.softmax(last(torch.cat([hidden, heard], dim=1)), dim=1)
