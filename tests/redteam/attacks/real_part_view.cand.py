"""The filters are linear, so their responses are summed first.

The answer is the real part of a complex result. `.real` is a view with a stride of two elements: right
values, memory of its own, twice the span.
"""

import torch


def run(state, x):
    half = state["bank"].sum(dim=0)
    response = torch.cat((half, half[1:-1].flip(0)))
    return torch.fft.ifft(torch.fft.fft(x) * response).real
