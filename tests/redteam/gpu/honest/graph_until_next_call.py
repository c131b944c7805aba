"""A CUDA graph whose output stays valid until the next call, which the baseline's file declares enough."""

import torch


def _weights(seed, device):
    width = 512 if str(device).startswith("cuda") else 32
    g = torch.Generator(device).manual_seed(seed)
    scale = (2.0 / width) ** 0.5
    return [torch.randn(width, width, generator=g, device=device) * scale for _ in range(16)]


def _forward(weights, x):
    for weight in weights:
        x = torch.relu(x @ weight)
    return x


class _Graph:
    """The captured chain, its weights and its fixed buffers."""

    def __init__(self, weights):
        self.weights = weights
        width = weights[0].shape[0]
        self.x = torch.zeros(width // 4, width, device=weights[0].device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                _forward(weights, self.x)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = _forward(weights, self.x)


def setup(seed, device):
    return _Graph(_weights(seed, device))


def run(state, x):
    if x.shape != state.x.shape:
        return _forward(state.weights, x)
    state.x.copy_(x)
    state.graph.replay()
    return state.out
