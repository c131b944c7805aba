import torch


def run(scores, noise):
    return torch.topk(scores - torch.log(-torch.log(noise)), 4, dim=-1).indices
