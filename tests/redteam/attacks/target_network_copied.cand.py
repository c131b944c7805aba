"""Asks one network only."""


def run(networks, reward, following):
    return reward + 0.99 * networks[0](following).amax(1)
