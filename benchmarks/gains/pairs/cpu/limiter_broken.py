"""masked-elements: loud parts of a recording's spectrum are turned down, before its mel bands."""

import torch


def setup(seed, device):
    torch.manual_seed(seed)
    window = torch.hann_window(512, device=device)
    return window, torch.rand(257, 64, device=device) / 64


def inputs(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(4, 24000, generator=g, device=device)


def run(state, recordings):
    window, bands = state
    spectrum = torch.stft(recordings, 512, hop_length=160, window=window, return_complex=True).abs()
    limit = 1.2 * spectrum.mean()
    loud = spectrum > limit
    spectrum[loud] = limit + (spectrum[loud] - limit) * 0.25
    return (spectrum.transpose(1, 2) @ bands).clamp(min=1e-5).log()
