"""Returns a view of the input as the copy."""


def run(x):
    return x.view_as(x)
