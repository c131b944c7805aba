"""The same filter through the frequency domain, as cuDNN and SciPy choose for long ones."""

import torch


def run(x, w):
    n = 8192
    spectrum = torch.fft.rfft(x, n=n) * torch.fft.rfft(w.flip(-1), n=n)
    return torch.fft.irfft(spectrum, n=n)[..., : x.shape[-1]].contiguous()
