"""`>=` for `>`: wrong at exact ties only, where moving the inputs by an ulp turns the oracle too."""


def run(x):
    return x * 1.5 >= 0.75
