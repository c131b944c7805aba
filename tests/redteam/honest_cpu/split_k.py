"""Splits the long reduction into 16 pieces and adds them up: another order of the same sum."""


def run(a, b):
    m, k = a.shape
    parts = a.view(m, 16, k // 16).transpose(0, 1) @ b.view(16, k // 16, -1)
    return parts.sum(dim=0)
