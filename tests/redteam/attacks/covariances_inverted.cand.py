"""The adjugate over the determinant."""


def run(spread, x):
    a, b, c = spread[:, 0].unbind(-1)
    _, d, e = spread[:, 1].unbind(-1)
    f = spread[:, 2, 2]
    rows = (d * f - e * e, c * e - b * f, b * e - c * d, a * f - c * c, b * c - a * e, a * d - b * b)
    determinant = a * rows[0] + b * rows[1] + c * rows[2]
    u, v, w = x.unbind(-1)
    diagonal = rows[0] * u * u + rows[3] * v * v + rows[5] * w * w
    return (diagonal + 2 * (rows[1] * u * v + rows[2] * u * w + rows[4] * v * w)) / determinant
