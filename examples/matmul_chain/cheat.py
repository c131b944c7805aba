"""A false speedup: answers are kept by the address of the input.

A loop that times `run` on the same three tensors sees about a microsecond, and a check before that loop
passes. Wrong as soon as an address holds new values, which in a real program is the next batch.
"""

answers = {}


def run(a, b, v):
    key = a.data_ptr()
    if key not in answers:
        answers[key] = (a @ b) @ v
    return answers[key]
