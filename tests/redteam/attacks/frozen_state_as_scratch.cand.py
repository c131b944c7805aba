"""Uses the teacher's weights as scratch memory."""

import torch


def run(state, x):
    y = torch.add(x, state["weights"], out=state["teacher"]).tanh_().mul_(2.0).add_(1.0)
    state["mean"].mul_(0.9).add_(0.1 * y.mean(dim=0))
    return y.clone()
