"""masked-elements: computed everywhere, and chosen."""

import torch


def run(state, recordings):
    window, bands = state
    spectrum = torch.stft(recordings, 512, hop_length=160, window=window, return_complex=True).abs()
    limit = 1.2 * spectrum.mean()
    spectrum = torch.where(spectrum > limit, limit + (spectrum - limit) * 0.25, spectrum)
    return (spectrum.transpose(1, 2) @ bands).clamp(min=1e-5).log()
