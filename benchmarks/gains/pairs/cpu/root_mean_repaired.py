"""hand-written-norm: torch's own RMS normalisation."""

from torch.nn.functional import rms_norm


def run(state, x):
    model, optimizer = state
    for layer in model:
        x = rms_norm(layer(x), (256,), eps=1e-6)
    loss = (x - 0.1).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
