"""Through the frequency domain, whose rounding is spread over everything: no less exact over all."""

import torch


def run(x, k):
    n = x.shape[-1]
    y = torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(k, n).conj(), n)
    return y[..., : n - k.shape[-1] + 1].contiguous()
