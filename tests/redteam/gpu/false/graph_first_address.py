"""A CUDA graph that reads where the first input lay, wherever the present one does."""

import torch
import torch.nn.functional as F

_kept = {}


def _model(weights, x):
    y = torch.relu(F.conv2d(x, weights[0], padding=1))
    return torch.relu(F.conv2d(y, weights[1], padding=1) + x)


def run(weights, x):
    if not _kept:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                _model(weights, x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = _model(weights, x)
        _kept.update(graph=graph, out=out)
    _kept["graph"].replay()
    return _kept["out"].clone()
