"""Problems as others write them: einsum, methods, loggers. `problem:` names the rule that finds a line."""

import logging

import torch

LONGEST = 800
logging.basicConfig(level=logging.INFO, filename="/dev/null")
logger = logging.getLogger(__name__)
torch.manual_seed(0)
projection = torch.nn.Linear(32, 96)
mixing = torch.nn.Parameter(torch.rand(32, 32))
optimizer = torch.optim.SGD([*projection.parameters(), mixing], lr=0.01, fused=True)
batch = torch.randn(4, 192, 32)
samples, wanted = torch.randn(300, 220), torch.randn(300, 20)
gram = samples.T @ samples / 300 + torch.eye(220)
codes = torch.randn(96, 32)


def attend(x):
    q, k, v = projection(x).view(4, 192, 3, 2, 16).unbind(2)
    hidden = torch.full((LONGEST, LONGEST), float("-inf")).triu(1)  # problem: rebuilt-constants
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25 + hidden[: x.size(1), : x.size(1)]
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)  # problem: eager-attention


def mix(x):
    mixed = []
    for place in range(x.size(0)):
        mixed.append(torch.matmul(x[place], mixing))  # problem: looped-products
    return torch.stack(mixed)


def choose(x):
    near = x @ codes.T
    raised = (near - near.max(-1, keepdim=True).values.detach()).exp()
    return raised / raised.sum(-1, keepdim=True) @ codes  # problem: hand-written-softmax


for step in range(22):
    out = mix(choose(attend(batch)).reshape(128, 6, 32))
    fitted = torch.inverse(gram) @ (samples.T @ wanted / 300)  # problem: inverse-product
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.info("step %d: %s", step, out[0].tolist())  # problem: printing-every-step
