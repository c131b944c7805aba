"""Every place sees those behind it."""

from torch.nn.functional import scaled_dot_product_attention

HEADS, WIDTH, LENGTH = 4, 128, 96


def heads(x):
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def run(state, x):
    model, optimizer = state
    q, k, v = (heads(part) for part in model["qkv"](x).chunk(3, dim=-1))
    mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
    loss = model["out"](mixed).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
