"""Functions that torch has, written out. `problem:` names the rule that has to find a line."""

import torch

torch.manual_seed(0)
projection = torch.nn.Linear(64, 192)
optimizer = torch.optim.SGD(projection.parameters(), lr=0.01, fused=True)
batch = torch.randn(4, 256, 64)
labels = torch.randint(0, 192, (4 * 256,))


def attend(q, k, v):
    scores = (q @ k.transpose(-2, -1)) * 0.25
    return torch.softmax(scores, -1) @ v  # problem: eager-attention


def normalise(x):
    centred = x - x.mean(-1, keepdim=True)
    spread = centred.pow(2).mean(-1, keepdim=True)
    return centred / (spread + 1e-5).sqrt()  # problem: hand-written-norm


def activate(x):
    inner = 0.7978845608 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))  # problem: hand-written-activation


def weigh(x):
    raised = torch.exp(x)
    return raised / raised.sum(-1, keepdim=True)  # problem: hand-written-softmax


for _ in range(22):
    q, k, v = projection(batch).view(4, 256, 3, 4, 16).permute(2, 0, 3, 1, 4)
    x = attend(q, k, v).transpose(1, 2).reshape(4, 256, 64)
    x = normalise(torch.cat([x, x, x], -1))
    x = activate(x)
    x = weigh(x)
    likely = torch.softmax(x.reshape(-1, 192), -1)
    loss = -torch.log(likely)[torch.arange(1024), labels].mean()  # problem: log-of-softmax
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
