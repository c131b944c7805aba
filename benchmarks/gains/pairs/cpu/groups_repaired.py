"""materialised-repeat: added as it is."""


def run(layer, x, place):
    return layer(x + place).amax(dim=1)
