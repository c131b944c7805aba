"""The first output is the caller's own memory, wrapped anew through numpy so that its storage starts
Elsewhere. Aliases are recognised by where a storage starts, and this one starts one row later than the
input's.
"""

import torch


def run(x):
    following = torch.from_numpy(x.numpy()[1:])
    return following, following - x[:-1]
