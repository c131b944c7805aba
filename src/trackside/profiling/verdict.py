"""One sentence: what a step is spent on, and the first thing to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from trackside.records.durations import duration
from trackside.records.profile import Breakdown, Bucket, Finding, Line, ProgramEnd

__all__ = ["ending", "verdict"]

_DOING = {
    "compute": "computing",
    "communication": "communicating",
    "copy": "copying",
    "host": "on the host alone",
    "idle": "waiting for input",
}
_BUCKETS = {
    "optimizer": "the optimizer's update takes",
    "loading": "loading takes",
    "copies": "copies take",
    "communication": "communication takes",
    "autograd": "autograd's own work takes",
    "unattributed": "what has no line takes",
}


def verdict(
    step_ms: float | None,
    is_step: bool,
    parts: Breakdown | None,
    lines: Sequence[Line],
    buckets: Sequence[Bucket],
    findings: Sequence[Finding],
    program: ProgramEnd,
    torch: bool,
    device: bool,
) -> str:
    """The sentence, whatever there is to say.

    Args:
        step_ms: None where no step was seen.
        is_step: whether it is a step, and not just the window.
        parts: of the step.
        lines: the longest first.
        buckets: what belongs to no line.
        findings: the best first.
        program: how it ended.
        torch: whether the program imported it.
        device: whether it computes on one.
    """
    if step_ms is None:
        return _nothing(program, torch)
    doing = _DOING if device else _DOING | {"host": "outside of operators"}
    length = duration(1e6 * step_ms)
    text = f"A step takes {length}" if is_step else f"In the {length} that were traced"
    if parts is not None:
        shares = {name: part / step_ms for name, part in parts.model_dump(by_alias=True).items()}
        most = max(shares, key=lambda name: shares[name])
        text += (
            f", {shares[most]:.0%} of it {doing[most]}"
            if is_step
            else (f" the program was {doing[most]} {shares[most]:.0%} of the time")
        )
    elif not is_step:
        text += " nothing can be told apart"
    if findings:
        first = findings[0]
        place = f" ({first.file}:{first.line})" if first.file else ""
        # The title as it is: it may begin with a name (Adam, Python's, TF32), and no rule tells which do.
        return f"{text}. First: {first.title}{place}; a change saves about {first.gain.mid:.0%} of the step."
    largest = max(buckets, key=lambda bucket: bucket.share, default=None)
    if largest is not None and largest.share > (lines[0].share if lines else 0.0):
        return f"{text}; {_BUCKETS[largest.name]} {largest.share:.0%}."
    if lines:
        first_line = lines[0]
        return f"{text}; {first_line.file}:{first_line.line} takes {first_line.share:.0%}."
    return f"{text}."


def ending(program: ProgramEnd) -> str:
    """`ended with exit code 1 after 3.2 s`."""
    how = f"was ended by {program.signal}" if program.signal else f"ended with exit code {program.exit_code}"
    return f"{how} after {duration(1e9 * program.seconds)}"


def _nothing(program: ProgramEnd, torch: bool) -> str:
    if not torch:
        return f"The program did not import torch, so no step was seen; it {ending(program)}."
    return f"No step was seen; the program {ending(program)}."
