"""Products of numbers with 11 bits, as TF32 has them."""

import torch
from torch import nn


def short(x):
    whole = x.contiguous().view(torch.int32)
    return ((whole + 0x1000) & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x, w = short(x), short(w)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = short(g)
        return g @ w, g.T @ x


def run(state, x, y):
    model, optimizer = state
    first, _, last = model
    h = torch.relu(Product.apply(x, first.weight) + first.bias)
    loss = nn.functional.cross_entropy(Product.apply(h, last.weight) + last.bias, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
