"""The kinds of probes: the judge asks for them by name, the reference process makes them."""

__all__ = ["PROBES", "SCALES"]

SCALES = {"small": 2.0**-6, "large": 2.0**3, "huge": 2.0**8, "extreme": 2.0**66}
"""Powers of two change no rounding. The huge one overflows exponentials that nobody tamed, the extreme one
squares of float32."""

PROBES = ("signs", *SCALES, "one-element", "mixed-scales")
