"""|x|² is the same for every code: |c|² - 2xc has the same smallest one, by one product."""

import torch


def run(codes, x):
    nearest = torch.addmm((codes * codes).sum(dim=-1), x, codes.T, alpha=-2).argmin(dim=-1)
    return codes[nearest], nearest
