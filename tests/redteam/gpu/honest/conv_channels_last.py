"""The same operators with channels last: its output has other strides, and the same values at every index."""

import torch
import torch.nn.functional as F


def run(state, x):
    nhwc = {"memory_format": torch.channels_last}
    y = F.conv2d(x.contiguous(**nhwc), state["weight"].contiguous(**nhwc), padding=1)
    return F.batch_norm(y, state["mean"], state["var"], state["gain"], state["shift"]).relu_()
