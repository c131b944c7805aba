"""A proper CUDA graph whose static output is handed out, to a caller who was promised fresh outputs."""

import torch

_graph = {}


def setup(seed, device):
    width = 512 if str(device).startswith("cuda") else 32
    g = torch.Generator(device).manual_seed(seed)
    scale = (2.0 / width) ** 0.5
    _graph.clear()
    return [torch.randn(width, width, generator=g, device=device) * scale for _ in range(16)]


def _forward(weights, x):
    for weight in weights:
        x = torch.relu(x @ weight)
    return x


def run(state, x):
    if not _graph:
        static = x.clone()
        _forward(state, static)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = _forward(state, static)
        _graph.update(graph=graph, out=out, static=static)
    if x.shape != _graph["static"].shape:
        return _forward(state, x)
    _graph["static"].copy_(x)
    _graph["graph"].replay()
    return _graph["out"]
