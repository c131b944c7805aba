"""The same in bfloat16: one answer in some hundreds is turned, each of them near its threshold.

Near ties are excused where a few ulps of the inputs turn them too; these are thousands of ulps away.
"""


def run(x, threshold):
    half = x.bfloat16()
    return half * 1.7 + half.abs() > threshold.bfloat16()
