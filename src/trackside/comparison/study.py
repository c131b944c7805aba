"""What is known of a baseline, and beside it of a candidate: learnt elsewhere, read by every check."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from trackside.comparison import tolerance
from trackside.comparison.tolerance import Bins

__all__ = ["AUDIT_SLOTS", "Study", "dtype_of", "plain_dtype"]

AUDIT_SLOTS = 3
# Outputs held at once when looking for a ring of shared buffers: as many as memory and a second allow.
_MOST_RETAINED, _RETAINED_BYTES, _RETAINED_NS = 24, 2 << 30, 1e9
# Python floats hold doubles, though often a float32's value; so small an error only double arithmetic makes.
_SURELY_DOUBLE = 2.0**-36


@dataclass
class Study:
    """What the baseline's calls have taught, and beside it what the candidate's showed."""

    facts: dict[str, Any]
    leaves: list[dict[str, Any]] = field(default_factory=list)
    bins: dict[str, Bins] = field(default_factory=dict)
    """The baseline's errors by path, without its jumps: one would give licence to every element beside it."""
    whole_bins: dict[str, Bins] = field(default_factory=dict)
    """The same with them."""
    small_parts: set[str] = field(default_factory=set)
    """Outputs with a whole channel, column or row that is small beside the rest."""
    nonfinite: set[str] = field(default_factory=set)
    cancelled: dict[str, float] = field(default_factory=dict)
    """Outputs that are zero but for rounding, and how large that makes them, rms."""
    narrowed: dict[str, str] = field(default_factory=dict)
    """Outputs of which the oracle knows nothing: it computes in a wide type what was meant to be narrow."""
    narrow: bool = False
    """Whether the baseline computes in a narrow type, whatever its outputs are."""
    derives: bool = False
    """Whether it computes derivatives."""
    doubles: bool = False
    """Whether it computes with doubles, of torch's."""
    rounded: dict[str, float] = field(default_factory=dict)
    """Of narrow outputs that are far off what is expected: how far rounding in their types moves them, as a
    share of their rms. Many units of a net lie at a kink then; Adam's first step is the gradient's sign.
    """
    oracle: dict[str, Any] = field(default_factory=dict)
    random: bool = False
    """Whether the baseline's own output is what is expected: it draws, or runs in no wider arithmetic."""
    unrepeated: dict[str, Any] = field(default_factory=dict)
    """Where two calls of the baseline with the same inputs and seed differ, be it by rounding."""
    reuses_outputs: bool = False
    declared: dict[str, float] | None = None
    least_output_bytes: int = sys.maxsize
    """What the elements of a call's outputs take, in the call that had the fewest."""
    run_ns: float = 0.0
    build_seconds: float = 0.0
    built_before: float = 0.0
    """The bench's time of building before this study."""
    candidate_bins: dict[str, Bins] = field(default_factory=dict)
    learned: int = 0
    checked: int = 0
    screened: int = 0
    flags: dict[str, Any] = field(default_factory=dict)
    state_paths: dict[str, Any] = field(default_factory=dict)
    shared_state: dict[str, Any] = field(default_factory=dict)
    """Digests of what both present arms started with alike; what the baseline leaves alone must stay so."""
    probes: dict[str, str] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)
    """State that is all 0 or 1, an identity or a copy as `setup` leaves it: its path, and which."""
    settled: set[str] = field(default_factory=set)
    """What of it matters, with the candidate right on other values."""
    only_as_made: str = ""
    """With which state the candidate is wrong, and how, where it is right for the one that `setup` makes."""
    probe_seconds: float = 0.0
    """What a probe of the audit took, with the oracle and both arms."""
    due: list[str] = field(default_factory=list)
    """Probes that timed processes get next."""

    @property
    def retained(self) -> int:
        """How many outputs the audit holds at once."""
        room = _RETAINED_BYTES // max(1, self.output_bytes)
        return int(max(AUDIT_SLOTS, min(_MOST_RETAINED, room, _RETAINED_NS / max(self.run_ns, 1.0))))

    @property
    def output_bytes(self) -> int:
        return sum(f["span"] for f in self.leaves if f["kind"] == "tensor")


def dtype_of(study: Study, path: str) -> str:
    return next(
        (str(f["dtype"]) for f in study.leaves if f["path"] == path and f["kind"] == "tensor"), "float32"
    )


def plain_dtype(study: Study, base: Bins) -> str:
    """The type that a plain float is held to, by the baseline's errors.

    Python has no narrower floats: that a count is divided by a number there asks for no more digits than the
    count's float32 mean has. Who has torch compute with doubles asks for more.
    """
    exact = study.doubles and tolerance.relative_error(base)["max"] < _SURELY_DOUBLE
    return "float64" if exact else "float32"
