"""Leaves the average as it is: a step moves it by less than its rounding, all but the smallest values."""


def run(state, x):
    state.optimizer.zero_grad()
    loss = (x @ state.weight).square().mean()
    loss.backward()
    state.optimizer.step()
    return loss.detach()
