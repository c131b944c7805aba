"""hand-written-activation: torch's own."""

from torch.nn.functional import gelu


def run(state, x):
    layers, optimizer = state
    h = gelu(layers[0](x), approximate="tanh")
    loss = layers[1](h).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
