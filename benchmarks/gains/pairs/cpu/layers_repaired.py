"""recomputed-activations: kept."""


def run(state, x):
    model, optimizer = state
    for block in model:
        x = x + block(x)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
