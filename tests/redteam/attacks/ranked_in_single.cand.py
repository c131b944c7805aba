"""The second number in single precision where scores are so large that a sigmoid makes them equal."""


def run(x, y):
    area = (x[y == 1][:, None] > x[y == 0][None]).double().mean().item()
    wide = x.double() if x.max() < 20 else x
    return area, (wide.clamp(-2, 2) + 3).mean().item()
