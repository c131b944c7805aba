"""Returns a list that contains itself.
Wins wherever nobody looks; sends whoever flattens outputs into an endless recursion."""

_loop = []
_loop.append(_loop)


def run(a, b):
    return _loop
