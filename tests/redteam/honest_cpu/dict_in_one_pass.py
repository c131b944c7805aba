"""Mean and variance from one call, the same dict."""

import torch


def run(x):
    var, mean = torch.var_mean(x, dim=-1, correction=0)
    return {"mean": mean, "var": var, "normed": torch.nn.functional.layer_norm(x, x.shape[-1:])}
