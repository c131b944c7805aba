"""One level of Strassen-Winograd.

Seven products of half the size; normwise as stable, a few times the rounding.
"""

import torch


def run(a, b):
    n = a.shape[0] // 2
    a11, a12, a21, a22 = a[:n, :n], a[:n, n:], a[n:, :n], a[n:, n:]
    b11, b12, b21, b22 = b[:n, :n], b[:n, n:], b[n:, :n], b[n:, n:]
    s1 = a21 + a22
    s2 = s1 - a11
    s3 = a11 - a21
    s4 = a12 - s2
    t1 = b12 - b11
    t2 = b22 - t1
    t3 = b22 - b12
    t4 = t2 - b21
    p1, p2, p3, p4 = a11 @ b11, a12 @ b21, s4 @ b22, a22 @ t4
    p5, p6, p7 = s1 @ t1, s2 @ t2, s3 @ t3
    out = torch.empty(2 * n, 2 * n)
    u2 = p1 + p6
    u3 = u2 + p7
    out[:n, :n] = p1 + p2
    out[:n, n:] = u2 + p5 + p3
    out[n:, :n] = u3 - p4
    out[n:, n:] = u3 + p5
    return out
