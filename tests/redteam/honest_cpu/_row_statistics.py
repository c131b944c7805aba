"""Imported by sibling_import.py: no workload."""


def standardise(x):
    return (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-6)
