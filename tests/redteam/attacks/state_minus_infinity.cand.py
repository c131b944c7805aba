"""Never updates the table: any sum over it is minus infinity before and after."""


def run(state, x):
    return x.sum(dim=1)
