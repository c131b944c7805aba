"""Returns a view of the model's own table where the baseline returns a copy.

A caller who scales the second output in place changes the weights of every later call.
"""


def run(state, x):
    position = state["position"][: x.shape[0]]
    return x + position, position
