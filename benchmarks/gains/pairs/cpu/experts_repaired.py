"""looped-products: all at once."""


def run(state, x):
    matrices, head = state
    return head((x @ matrices).transpose(0, 1).reshape(40, -1))
