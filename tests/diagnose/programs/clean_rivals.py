"""Nothing to find: two networks trained against each other, each with an optimizer of its own."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits as judged

torch.manual_seed(0)
maker = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
critic = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
makes = torch.optim.Adam(maker.parameters(), lr=1e-3, fused=True)
judges = torch.optim.Adam(critic.parameters(), lr=1e-3, fused=True)
real, noise = torch.randn(256, 128), torch.randn(256, 32)
ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)
for _ in range(22):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = maker(noise)
        true, false = critic(real), critic(made.detach())
    judges.zero_grad()
    (judged(true.float(), ones) + judged(false.float(), zeros)).backward()
    judges.step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fooled = critic(made)
    makes.zero_grad()
    judged(fooled.float(), ones).backward()
    makes.step()
