"""python-loop: all samples at once."""


def run(model, x):
    centred = x - x.mean(dim=1, keepdim=True)
    return model(centred / (centred.std(dim=1, keepdim=True) + 1e-3))
