"""python-loop: all months at once."""


def run(layer, x):
    return layer((x - x.mean(dim=1, keepdim=True)) / (x.abs().amax(dim=1, keepdim=True) + 1))
