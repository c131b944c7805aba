"""Returns the row expanded with stride zero: equal values, no memory written."""


def run(row):
    return row.expand(row.numel() // 2, -1)
