"""The closed form with its passes in place."""

import torch


def run(mean, scale, other_mean, other_scale):
    ratio = (scale / other_scale).square_()
    distance = torch.sub(mean, other_mean).div_(other_scale).square_()
    return distance.add_(ratio).sub_(1).sub_(ratio.log_()).mul_(0.5)
