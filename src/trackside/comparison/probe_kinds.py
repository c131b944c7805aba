"""The kinds of probes: the judge asks for them by name, the reference process makes them."""

__all__ = ["FINITE_ONLY", "FLOATS_ONLY", "NORMWISE", "NO_SUCH_INPUTS", "ORDER_KEPT", "PROBES", "SCALES"]

SCALES = {"small": 2.0**-6, "large": 2.0**3, "huge": 2.0**8, "extreme": 2.0**100}
"""Powers of two change no rounding. The huge one overflows exponentials that nobody tamed, the extreme one
squares of float32, by so much that no order of factors would save them."""

NORMWISE = frozenset(
    {"negative", "one-element", "one-negative", "ends", "in-order", "peaked", "aligned", "mixed-scales"}
)
"""Probes that make outputs of very unequal size, by mixing magnitudes or since nothing cancels: there fast
transforms are as exact as the largest value allows, and legal."""

FLOATS_ONLY = frozenset({"extreme"})
"""Probes on which indices, counts and masks say nothing: what they are made from underflows into ties."""

ORDER_KEPT = frozenset({"huge"})
"""Probes that leave every order as it was, and on which an exponential may underflow into ties: there places
that were right before are right too."""

FINITE_ONLY = frozenset({"zeros"})
"""Probes on which answers may differ, since ties and kinks may be resolved otherwise, but must be numbers."""

NO_SUCH_INPUTS = "if such inputs cannot occur, declare `domain` in the baseline's file"
"""The way out for who is right on all inputs that there are, and fails on what a probe makes of them."""

PROBES = (
    "signs",
    "negative",
    *SCALES,
    "one-element",
    "one-negative",
    "ends",
    "in-order",
    "peaked",
    "aligned",
    "mixed-scales",
    "zeros",
)
