"""recomputed-activations: the stages are called themselves."""

from torch.nn import functional


def run(state, noisy, quiet):
    model, optimizer = state
    x = model["enter"](noisy)
    for stage in model["stages"]:
        x = x + stage(x)
    loss = functional.smooth_l1_loss(noisy - model["leave"](x), quiet)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
