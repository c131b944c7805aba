"""scalar-reads: read as two lists, before the loop."""

from torch.nn import functional


def run(network, customers, gaps):
    takes = functional.softplus(network(customers)).squeeze(1)
    arrivals = gaps.cumsum(dim=0)
    free, waits = 0.0, []
    for arrives, lasts in zip(arrivals.tolist(), takes.tolist(), strict=True):
        begins = max(free, arrives)
        waits.append(begins - arrives)
        free = begins + lasts
    return takes, takes.new_tensor(waits)
