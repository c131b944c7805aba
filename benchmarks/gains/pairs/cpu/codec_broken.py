"""one-hot-product: sound is decoded from a codec's numbers, each of which stands for a vector."""

import torch
from torch import nn
from torch.nn import functional


def setup(seed, device):
    torch.manual_seed(seed)
    layers = [
        nn.Conv1d(64, 64, 5, padding=2),
        nn.ELU(),
        nn.ConvTranspose1d(64, 32, 8, 4, padding=2),
        nn.ELU(),
    ]
    layers += [nn.ConvTranspose1d(32, 16, 8, 4, padding=2), nn.ELU(), nn.Conv1d(16, 1, 7, padding=3)]
    decoder = nn.Sequential(*layers, nn.Tanh()).to(device).requires_grad_(False)
    return torch.randn(512, 64, device=device), decoder


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 512, (6, 240), generator=g, device=device)


def run(state, codes):
    book, decoder = state
    vectors = functional.one_hot(codes, 512).to(book.dtype) @ book
    return decoder(vectors.transpose(1, 2)).squeeze(1)
