"""Softmax by hand, with the maximum subtracted: slower than torch's, and right."""


def run(x):
    e = (x - x.amax(dim=-1, keepdim=True)).exp_()
    return e.div_(e.sum(dim=-1, keepdim=True))
