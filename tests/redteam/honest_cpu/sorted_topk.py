"""The largest values by a full argsort: another way to the same answer."""


def run(x):
    values, indices = x.sort(dim=-1, descending=True)
    return values[:, :64].clone(), indices[:, :64].clone()
