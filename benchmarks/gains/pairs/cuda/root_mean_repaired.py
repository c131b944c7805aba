"""hand-written-norm: torch's own RMS normalisation."""

from torch.nn.functional import rms_norm


def run(layers, x):
    for layer in layers:
        x = layer(rms_norm(x, (2048,), eps=1e-6))
    return x
