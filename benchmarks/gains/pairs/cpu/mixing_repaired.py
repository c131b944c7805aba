"""hand-written-softmax: torch's own."""


def run(state, x):
    layer, memory = state
    return (layer(x) @ memory.T / 10).softmax(dim=1) @ memory
